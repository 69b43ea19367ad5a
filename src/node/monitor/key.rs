//! The RSA key that monitoring data may be encrypted with: PKCS#1 v1.5, as `onemonitord` decrypts it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rsa::pkcs1::DecodeRsaPublicKey as _;
use rsa::traits::PublicKeyParts as _;

/// A public key of `onemonitord`.
#[derive(Debug, Clone)]
pub struct PublicKey {
    key: rsa::PublicKey,
}

/// What is wrong with a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// the key of NETWORK/PUBKEY in monitord.conf is not in PEM form "RSA PUBLIC KEY": convert it with ssh-keygen -f KEY.pub -e -m pem (a key of ssh) or openssl rsa -pubin -RSAPublicKey_out (one in the form "PUBLIC KEY")
    #[error(
        "the key of NETWORK/PUBKEY in monitord.conf is not in PEM form \"RSA PUBLIC KEY\": convert it with ssh-keygen -f KEY.pub -e -m pem (a key of ssh) or openssl rsa -pubin -RSAPublicKey_out (one in the form \"PUBLIC KEY\")"
    )]
    NoBlock,
    /// NETWORK/PUBKEY can't be read: {0}
    #[error("NETWORK/PUBKEY can't be read: {0}")]
    Unreadable(String),
    /// encryption failed: {0}
    #[error("encryption failed: {0}")]
    Encrypt(String),
}

const BEGIN: &str = "-----BEGIN RSA PUBLIC KEY-----";
const END: &str = "-----END RSA PUBLIC KEY-----";

impl PublicKey {
    /// Reads the PEM block `RSA PUBLIC KEY`; blanks may stand where newlines were, and what stands outside the
    /// markers is ignored. `None` for an empty text: no encryption is wanted.
    ///
    /// # Errors
    /// When there is text but no usable key.
    pub fn read(pem: &str) -> Result<Option<Self>, KeyError> {
        if pem.trim().is_empty() {
            return Ok(None);
        }
        let (_, rest) = pem.split_once(BEGIN).ok_or(KeyError::NoBlock)?;
        let (body, _) = rest.split_once(END).ok_or(KeyError::NoBlock)?;
        let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
        let der = STANDARD.decode(body).map_err(|error| KeyError::Unreadable(error.to_string()))?;
        let key =
            rsa::PublicKey::from_pkcs1_der(&der).map_err(|error| KeyError::Unreadable(error.to_string()))?;
        Ok(Some(Self { key }))
    }

    /// Encrypts in blocks of key size - 11 bytes; each gives key size bytes.
    ///
    /// # Errors
    /// When the key can't encrypt (too small), or the system has no random numbers.
    pub fn encrypt(&self, plain: &[u8]) -> Result<Vec<u8>, KeyError> {
        let block = self.key.size().saturating_sub(11).max(1);
        let mut out = Vec::with_capacity((plain.len() / block + 1) * self.key.size());
        for part in plain.chunks(block) {
            let sealed =
                self.key.pkcs1v15_encrypt(part).map_err(|error| KeyError::Encrypt(error.to_string()))?;
            out.extend(sealed);
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made with: openssl genrsa -traditional 1024; openssl rsa -RSAPublicKey_out
    const PRIVATE: &str = include_str!("testdata/monitor.pem");
    const PUBLIC: &str = include_str!("testdata/monitor.pub.pem");

    fn decrypt(sealed: &[u8]) -> Vec<u8> {
        use rsa::pkcs1::DecodeRsaPrivateKey as _;
        let key = rsa::PrivateKey::from_pkcs1_pem(PRIVATE).expect("a key");
        let blocks = sealed.chunks(key.size());
        blocks.flat_map(|block| key.pkcs1v15_decrypt(block).expect("ours")).collect()
    }

    #[test]
    fn any_length_comes_back() {
        let key = PublicKey::read(PUBLIC).expect("good").expect("there");
        for length in [0, 1, 116, 117, 118, 5000] {
            let plain: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let sealed = key.encrypt(&plain).expect("encrypts");
            assert_eq!(sealed.len(), plain.len().div_ceil(117) * 128);
            assert_eq!(decrypt(&sealed), plain);
        }
    }

    #[test]
    fn blanks_may_stand_for_newlines_and_text_around_is_ignored() {
        let folded = format!("junk {} more", PUBLIC.replace('\n', "  "));
        assert!(PublicKey::read(&folded).expect("good").is_some());
        assert!(PublicKey::read(" \n").expect("empty").is_none());
    }

    #[test]
    fn other_forms_are_refused_with_the_mend() {
        let other = PUBLIC.replace("RSA PUBLIC", "PUBLIC");
        assert!(PublicKey::read(&other).expect_err("form").to_string().contains("-RSAPublicKey_out"));
        let broken = format!("{BEGIN}\nAAAA\n{END}");
        assert!(matches!(PublicKey::read(&broken), Err(KeyError::Unreadable(_))));
    }
}
