//! `kvmad vm create`: the host prepares disk, seed and network, then the driver's own DEPLOY starts the domain.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::explain::explained;
use super::site::{Site, on_site, shown, tell};
use super::{Format, Place, Stop, Which, action, delete, domain, folder, size};
use crate::domain::Emulator;
use crate::node::cloud::init::addresses;
use crate::node::cloud::spec::{ImageWanted, Interface, Network, PREFIX, Places, Prepared, Seed, Wanted};
use crate::vmm::verb::Verb;

/// Arguments of `kvmad vm create`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// A name of the library, an absolute path on the host, or an https URL that the host fetches once
    #[arg(long)]
    image: String,
    /// sha256:HEX or sha512:HEX that the image must have
    #[arg(long, value_name = "SUM")]
    checksum: Option<String>,
    /// Size of the disk (20G) [default: 10G, or that of a larger image]
    #[arg(long, value_parser = size::bytes)]
    size: Option<u64>,
    /// Memory (1G)
    #[arg(long, value_parser = size::bytes, default_value = "1G")]
    memory: u64,
    /// Virtual CPUs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: u32,
    /// Whether KVM runs the guest, or software
    #[arg(long = "type", value_enum, default_value_t = Kind::Kvm)]
    kind: Kind,
    #[command(flatten)]
    guest: Guest,
    #[command(flatten)]
    net: Net,
    #[command(flatten)]
    place: Place,
    /// Cache of downloaded images on the host [default: base of [cloud] in kvmad.conf]
    #[arg(long, value_name = "FOLDER", value_parser = folder)]
    base_path: Option<PathBuf>,
    /// Library of images on the host [default: library of [cloud] in kvmad.conf]
    #[arg(long, value_name = "FOLDER", value_parser = folder)]
    library_path: Option<PathBuf>,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// What the guest is told.
#[derive(Debug, Args)]
struct Guest {
    /// A user to be made, who may use sudo [default: the image's own]
    #[arg(long)]
    user: Option<String>,
    /// File with public ssh keys (several times) [default: ~/.ssh/id_*.pub]
    #[arg(long = "ssh-key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Host name [default: NAME]
    #[arg(long)]
    hostname: Option<String>,
    /// A package that cloud-init installs (several times)
    #[arg(long = "package", value_name = "PACKAGE")]
    packages: Vec<String>,
    /// File with own user-data, merged with the rest
    #[arg(long, value_name = "FILE")]
    user_data: Option<PathBuf>,
    /// Don't have cloud-init install qemu-guest-agent on a bridged VM: the image has it, or can't reach its packages
    #[arg(long)]
    no_agent_package: bool,
}

/// Its network.
#[derive(Debug, Args)]
struct Net {
    /// Bridge of the host
    #[arg(long, conflicts_with = "nat")]
    bridge: Option<String>,
    /// Network of libvirt, which is started if need be [default: default]
    #[arg(long, value_name = "NETWORK")]
    nat: Option<String>,
    /// Static address with its prefix, 192.0.2.7/24 (several times) [default: by DHCP]
    #[arg(long = "address", value_name = "ADDRESS", value_parser = address)]
    addresses: Vec<String>,
    /// Default route (several times)
    #[arg(long = "gateway", value_name = "ADDRESS", requires = "addresses")]
    gateways: Vec<IpAddr>,
    /// DNS server (several times) [default: resolvers of [cloud] for bridged and static, else those of DHCP]
    #[arg(long = "resolver", value_name = "ADDRESS", value_delimiter = ',')]
    resolvers: Vec<IpAddr>,
    /// Domain in which names are looked for (several times)
    #[arg(long = "search", value_name = "DOMAIN", value_delimiter = ',')]
    search: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Kvm,
    Qemu,
}

fn address(text: &str) -> Result<String, String> {
    crate::node::cloud::seed::check_address(text).map(|()| text.to_owned())
}

/// Makes the VM; gives what is printed.
pub fn run(arguments: &Arguments) -> Result<String, Stop> {
    on_site(async |site| create(&site, arguments).await)
}

async fn create(site: &Site, arguments: &Arguments) -> Result<String, Stop> {
    let Which { name, host } = &arguments.which;
    let mac = mac();
    let wanted = wanted(site, arguments, &mac)?;
    let description = serde_json::to_vec(&wanted).map_err(|error| Stop::unchecked(error.to_string()))?;
    let prepared: Prepared = site.ask_json(host, &["prepare"], description).await?;
    let machine = domain::Machine {
        name,
        memory: arguments.memory,
        cpus: arguments.cpus,
        emulator: match arguments.kind {
            Kind::Kvm => Emulator::Kvm,
            Kind::Qemu => Emulator::Qemu,
        },
        mac: &mac,
        network: &wanted.network,
    };
    match start(site, arguments, &machine, &prepared).await {
        Ok(uuid) => Ok(done(arguments, &prepared, &uuid)),
        Err(stop) => {
            let stop = explained(site, host, stop).await;
            let images = shown(&wanted.images)?;
            if let Err(left) = delete::files(site, host, images, name).await {
                tell(host, &format!("the files of the VM are left: {}", left.reason));
            }
            Err(stop)
        }
    }
}

async fn start(
    site: &Site,
    arguments: &Arguments,
    machine: &domain::Machine<'_>,
    prepared: &Prepared,
) -> Result<String, Stop> {
    let host = &arguments.which.host;
    let (vm, domain) = domain::make(machine, prepared)?;
    let file = prepared.folder.join(crate::node::cloud::prepare::DEPLOYMENT);
    let document = action::deploy(host, shown(&file)?, &vm);
    site.act(Verb::Deploy, document, Some(std::sync::Arc::new(move |_| Ok(domain.clone()))), true).await
}

fn wanted(site: &Site, arguments: &Arguments, mac: &str) -> Result<Wanted, Stop> {
    let cloud = &site.started.settings.cloud;
    let name = arguments.which.name.clone();
    let images = arguments.place.images(&site.started.settings);
    let mut with_images = cloud.clone();
    with_images.images = crate::settings::Folder(images.clone());
    let mut places = Places::of(&with_images);
    if let Some(base) = &arguments.base_path {
        places.base.clone_from(base);
    }
    if let Some(library) = &arguments.library_path {
        places.library.clone_from(library);
    }
    let network = match (&arguments.net.bridge, &arguments.net.nat) {
        (Some(bridge), _) => Network::Bridge(bridge.clone()),
        (None, nat) => Network::Nat(nat.clone().unwrap_or_else(|| "default".to_owned())),
    };
    let standard = addresses(&cloud.resolvers, "resolvers of [cloud]")
        .map_err(|error| Stop::usage(error.to_string()))?;
    let interface = interface(&arguments.net, mac, standard);
    let seed = seed(arguments, interface, &network)?;
    let image = ImageWanted {
        reference: arguments.image.clone(),
        checksum: arguments.checksum.clone(),
        size: arguments.size,
    };
    Ok(Wanted { name, images, image, places, seed, network })
}

/// What is told of the network: a bridge has no resolvers of its own, and a static address brings none either.
fn interface(net: &Net, mac: &str, standard: Vec<IpAddr>) -> Interface {
    let needs = net.bridge.is_some() || !net.addresses.is_empty();
    let resolvers = match (net.resolvers.is_empty(), needs) {
        (false, _) => net.resolvers.clone(),
        (true, true) => standard,
        (true, false) => Vec::new(),
    };
    Interface {
        mac: mac.to_owned(),
        addresses: net.addresses.clone(),
        gateways: net.gateways.clone(),
        resolvers,
        search: net.search.clone(),
    }
}

fn seed(arguments: &Arguments, interface: Interface, network: &Network) -> Result<Seed, Stop> {
    let (guest, name) = (&arguments.guest, &arguments.which.name);
    let keys = keys(&guest.keys)?;
    let user_data = guest.user_data.as_deref().map(read).transpose()?;
    if keys.is_empty() && user_data.is_none() {
        return Err(Stop::usage(
            "nobody could log in: there is no public key in ~/.ssh; give --ssh-key FILE (or --user-data FILE)",
        ));
    }
    let mut packages = guest.packages.clone();
    let agent = "qemu-guest-agent";
    let bridged = matches!(network, Network::Bridge(_));
    if bridged && !guest.no_agent_package && !packages.iter().any(|package| package == agent) {
        packages.push(agent.to_owned());
    }
    let unique: u64 = rand::random();
    Ok(Seed {
        instance: format!("{PREFIX}{name}-{unique:016x}"),
        hostname: guest.hostname.clone().unwrap_or_else(|| name.clone()),
        user: guest.user.clone(),
        keys,
        packages,
        user_data,
        interfaces: vec![interface],
    })
}

fn read(path: &Path) -> Result<String, Stop> {
    std::fs::read_to_string(path).map_err(|error| Stop::usage(format!("{}: {error}", path.display())))
}

/// The keys in `files`; without any those that ssh itself would offer.
fn keys(files: &[PathBuf]) -> Result<Vec<String>, Stop> {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    if files.is_empty() {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let names = ["id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk"];
        let own = names
            .iter()
            .filter_map(|name| std::fs::read_to_string(home.join(".ssh").join(format!("{name}.pub"))).ok());
        return Ok(own.flat_map(|text| lines(&text)).collect());
    }
    let mut all = Vec::new();
    for file in files {
        for key in lines(&read(file)?) {
            crate::node::cloud::seed::check_key(&key)
                .map_err(|reason| Stop::usage(format!("{}: {reason}", file.display())))?;
            all.push(key);
        }
    }
    Ok(all)
}

/// A fresh MAC address of the range that QEMU uses.
fn mac() -> String {
    let [a, b, c]: [u8; 3] = rand::random();
    format!("52:54:00:{a:02x}:{b:02x}:{c:02x}")
}

fn done(arguments: &Arguments, prepared: &Prepared, uuid: &str) -> String {
    let Which { name, host } = &arguments.which;
    if arguments.format == Format::Json {
        let value = serde_json::json!({
            "name": name, "host": host.as_str(), "domain": format!("{PREFIX}{name}"), "uuid": uuid,
            "folder": prepared.folder, "image": prepared.image, "size": prepared.size,
        });
        return format!("{value}\n");
    }
    format!(
        "{name} runs on {host}: domain {PREFIX}{name}, disk {} of {} MiB over {}\nkvmad vm address {name} --host {host}\n",
        prepared.folder.join("disk.0").display(),
        prepared.size >> 20,
        prepared.image.display()
    )
}
