//! Every rule of the text form, one row each.

use super::*;
use crate::template::value::{Level, Template, Value};

fn defaults(text: &str) -> Parsed {
    parse(text, Level::Defaults, "test.conf", Rules::DEFAULTS)
}

fn vm(text: &str) -> Parsed {
    parse(text, Level::Vm, "vm.tmpl", Rules::TEMPLATE)
}

/// `A=1 B=[X=2,Y=] `: attributes in order, values in debug form.
fn shown(template: &Template) -> String {
    let mut all = Vec::new();
    for attribute in template.attributes() {
        all.push(match &attribute.value {
            Value::Single(value) => format!("{}={value:?}", attribute.name),
            Value::Vector(members) => {
                let members: Vec<_> = members.iter().map(|m| format!("{}={:?}", m.name, m.value)).collect();
                format!("{}=[{}]", attribute.name, members.join(","))
            }
        });
    }
    all.join(" ")
}

/// Asserts what a text gives: attributes, and whether there is an error behind them.
fn table(rows: &[(&str, &str, bool)]) {
    for (text, expected, broken) in rows {
        let parsed = defaults(text);
        assert_eq!(shown(&parsed.template), *expected, "{text:?}: {:?}", parsed.error);
        assert_eq!(parsed.error.is_some(), *broken, "{text:?}: {:?}", parsed.error);
    }
}

#[test]
fn attributes_need_nothing_between_them() {
    table(&[
        ("", "", false),
        ("  \n\t\n", "", false),
        ("A=1 B=2", r#"A="1" B="2""#, false),
        ("A=1\nB=2\n", r#"A="1" B="2""#, false),
        ("A\n=1", r#"A="1""#, false),
        ("A\n\n \t= 1", r#"A="1""#, false),
        ("A=a b=c", r#"A="a" B="c""#, false),
        ("a=1", r#"A="1""#, false),
        ("A=1;", r#"A="1;""#, false),
        (".A=1", r#"A="1""#, false),
        ("A=\"x\";B=2", r#"A="\"x\";B""#, true),
        ("A-B=1", "", true),
        ("A=a b", r#"A="a""#, true),
        ("A=1,B=2", r#"A="1""#, true),
        ("A", "", true),
        ("=1", "", true),
        ("\u{feff}A=1", r#"A="1""#, false),
    ]);
}

#[test]
fn empty_values_are_written_at_the_end_of_a_line_or_in_quotes() {
    table(&[
        ("A=\n", r#"A="""#, false),
        ("A =  \nB=1", r#"A="" B="1""#, false),
        ("A=", "", true),
        ("A= ", "", true),
        (r#"A="""#, r#"A="""#, false),
        ("A=[]", "A=[]", false),
        ("A=[ ]", "A=[]", false),
        ("A=[\n\n]", "A=[]", false),
        ("A = \n[ B=1 ]", r#"A="" B="1""#, true),
    ]);
}

#[test]
fn members_are_separated_by_commas_and_not_nested() {
    table(&[
        ("A=[B=1,C=2]", r#"A=[B="1",C="2"]"#, false),
        ("A = [\n B = 1 ,\n C = \"x y\"\n]\n", r#"A=[B="1",C="x y"]"#, false),
        ("A=[ B=1, ]", "", true),
        ("A=[ , B=1 ]", "", true),
        ("A=[ B=1 C=2 ]", "", true),
        ("A=[ B=1,,C=2 ]", "", true),
        ("A=[ B= , C=2 ]", "", true),
        ("A=[ B=\n]", "", true),
        (r#"A=[ B="" ]"#, r#"A=[B=""]"#, false),
        ("A=[ B=[ C=1 ] ]", "", true),
        ("A=[ B=1", "", true),
        ("A=[", "", true),
        ("A=[B]", "", true),
        ("A=[ B=1, B=2, b=3 ]", r#"A=[B="1"]"#, false),
        ("A=[ 9b=1, XMLc=2 ]", r#"A=[9B="1",XMLC="2"]"#, false),
        ("X=1 A=[ B=1 C=2 ] Y=2", r#"X="1""#, true),
    ]);
}

#[test]
fn signs_inside_values_need_quotes() {
    table(&[
        ("A=a=b", r#"A="a""#, true),
        ("A=http://h/?x=1", r#"A="http://h/?x""#, true),
        (r#"A="http://h/?x=1""#, r#"A="http://h/?x=1""#, false),
        ("A==b", r#"A="b""#, false),
        ("A= = b", r#"A="b""#, false),
        ("A=\"a,b [c] #d\"", r#"A="a,b [c] #d""#, false),
        ("A=]b", r#"A="b""#, false),
        ("A=,b", r#"A="b""#, false),
        ("A== [B=1]", r#"A=[B="1"]"#, false),
    ]);
}

#[test]
fn a_comment_is_one_only_where_a_name_could_stand_and_a_line_end_follows() {
    table(&[
        ("# text\nA=1", r#"A="1""#, false),
        ("A=a#b\n", r#"A="a""#, false),
        ("A=1 # text\nB=2", r#"A="1" B="2""#, false),
        ("A= # text\n", r#"A="text""#, false),
        ("A= #\nB=1", r#"A="B""#, true),
        ("A=1\n# last line", r#"A="1""#, true),
        ("A=1\n#", r#"A="1""#, false),
        ("A=1\n# ---", r#"A="1""#, false),
        ("A = [ B = \"x\", # c\nC = \"y\" # d\n]\n", r#"A=[B="x",C="y"]"#, false),
        ("A = [ B = \"x\"\n # last\n]\n", r#"A=[B="x"]"#, false),
    ]);
}

#[test]
fn quotes_close_at_the_first_quote_without_a_backslash_before_it() {
    table(&[
        (r#"A="a\"b""#, r#"A="a\"b""#, false),
        (r#"A="a\nb\\c""#, r#"A="a\\nb\\\\c""#, false),
        (r#"A="C:\""#, r#"A="C:\\""#, false),
        ("A=\"C:\\\"\nB=\"x y\"", r#"A="C:\"\nB=""#, true),
        (r#"A="C:\" B=1"#, r#"A="C:\\" B="1""#, false),
        ("A=\"x\n y\"\nB=1", r#"A="x\n y" B="1""#, false),
        ("A=\"abc\nB=1", r#"A="\"abc" B="1""#, false),
        ("A='b'", r#"A="'b'""#, false),
        ("A='a b'", r#"A="'a""#, true),
        ("A=\"  b \"", r#"A="  b ""#, false),
        ("A=\"ä\u{1F600}\" B=ö", "A=\"ä\u{1F600}\" B=\"ö\"", false),
        ("Ä=1", "", true),
    ]);
}

#[test]
fn the_longer_of_a_bare_and_a_quoted_value_wins() {
    table(&[
        (r#"A="abc"def"#, r#"A="\"abc\"def""#, false),
        (r#"A="abc";"#, r#"A="\"abc\";""#, false),
        (r#"A="a"b"c""#, r#"A="\"a\"b\"c\"""#, false),
        ("A=\"abc\"\r\n", r#"A="\"abc\"\r""#, false),
        ("A=\"a b\"\r\nB=\"c\" \r\n", r#"A="a b" B="c""#, false),
        ("A=1\r\nB=2\r\n", r#"A="1\r" B="2\r""#, false),
        (r#"A="a b"c=1"#, r#"A="a b" C="1""#, false),
    ]);
}

#[test]
fn a_closing_cdata_mark_ends_the_text_when_its_line_is_longer() {
    table(&[
        ("Z=1\nA=1 B=\"x ]]> y\"\nC=2", r#"Z="1""#, true),
        ("Z=1\nB=\"x ]]> y\"\nC=2", r#"Z="1""#, true),
        ("B=\"x ]]> y\n z\"\nC=2", r#"B="x ]]> y\n z" C="2""#, false),
        ("B=\"x\n ]]> y\"\nC=2", r#"B="x\n ]]> y" C="2""#, false),
        ("A=1 # ]]>\n", "", true),
        ("# ]]>\nA=1", r#"A="1""#, false),
        ("A=[ B=1,\nC=\"]]>\"]\n", "", true),
        ("A=1 ]]>", "", true),
    ]);
}

#[test]
fn a_nul_byte_ends_the_value() {
    table(&[("A=\"a\0b c\" B=1", r#"A="a" B="1""#, false), ("A=a\0b", r#"A="a""#, false)]);
}

#[test]
fn names_are_repaired_at_the_top_only() {
    table(&[
        ("9A=1", r#"ONE_9A="1""#, false),
        ("XMLx=1", r#"ONE_XMLX="1""#, false),
        ("XML=1", r#"ONE_XML="1""#, false),
        ("xmlx=1", r#"XMLX="1""#, false),
        ("XM=1", r#"XM="1""#, false),
        ("_a=1", r#"_A="1""#, false),
    ]);
}

#[test]
fn the_last_of_a_name_counts_in_the_defaults_file_and_all_count_in_a_vm() {
    let text = "OS=[ARCH=a] D=1 OS=[MACHINE=b] D=[X=1]";
    assert_eq!(shown(&defaults(text).template), r#"OS=[MACHINE="b"] D=[X="1"]"#);
    assert_eq!(shown(&vm(text).template), r#"OS=[ARCH="a"] D="1" OS=[MACHINE="b"] D=[X="1"]"#);
}

#[test]
fn values_of_a_vm_are_trimmed_and_those_of_the_defaults_file_are_not() {
    let text = "A=\" \tx y\r\n\" B=[ C=\" z \" ]";
    assert_eq!(shown(&defaults(text).template), r#"A=" \tx y\r\n" B=[C=" z "]"#);
    assert_eq!(shown(&vm(text).template), r#"A="x y" B=[C="z"]"#);
}

#[test]
fn every_value_knows_its_file_and_line() {
    let parsed = defaults("# head\n\nA = 1\nOS = [ ARCH = \"x\",\n   MACHINE = \"y\" ]\n");
    let os = &parsed.template.attributes()[1];
    assert_eq!(os.origin.to_string(), "defaults file test.conf:4");
    let Value::Vector(members) = &os.value else { panic!("a vector") };
    assert_eq!((members[0].origin.line, members[0].origin.column), (4, 8));
    assert_eq!((members[1].origin.line, members[1].origin.column), (5, 4));
    assert_eq!(&*members[1].origin.file.clone().expect("a file"), "test.conf");
}

#[test]
fn an_error_says_what_is_wrong_where_and_what_to_do() {
    for (text, line, column, message, help) in [
        ("A=1\nB C=2", 2, 1, "behind the name `B`", "quotes"),
        ("A=a b", 1, 5, "behind the name `b`", "quotes"),
        ("A=1\n# the end", 2, 3, "behind the name `the`", "line end"),
        ("A-B=1", 1, 1, "behind the name `A`", "letters, digits"),
        ("A=1,B=2", 1, 4, "comma stands outside", "quotes"),
        ("A =\n[ B=1 ]", 2, 7, "closes nothing", "line of its `=`"),
        ("A=1 ]", 1, 5, "closes nothing", "earlier `]`"),
        ("A=[ B=1, ]", 1, 10, "follow the comma", "remove the comma"),
        ("A=[ , B=1 ]", 1, 5, "before the comma", "remove the comma"),
        ("A=[ B=1 C=2 ]", 1, 9, "comma or `]`", "commas"),
        ("A=[ B=\n]", 1, 5, "value of the member `B`", "\"\""),
        ("A=[ B=[ C=1 ] ]", 1, 7, "inside a vector", "one level"),
        ("\nA=[ B=1\n", 3, 1, "ends inside the [ of line 2", "close it"),
        ("A=", 1, 1, "value of `A` is missing", "empty value"),
        ("A=1\nB=x ]]> y", 2, 3, "]]>", ""),
        ("=1", 1, 1, "name of an attribute", ""),
    ] {
        let error = defaults(text).error.expect(text);
        assert!(error.message.contains(message), "{text:?}: {error}");
        assert_eq!((error.line, error.column), (line, column), "{text:?}: {error}");
        assert!(error.help.unwrap_or("").contains(help), "{text:?}: {:?}", error.help);
    }
}

#[test]
fn what_reads_otherwise_than_it_looks_is_noted() {
    for (text, id, key) in [
        ("A= # text\n", "hash-in-value", "A"),
        ("OS=[ARCH=\"x\"; ]", "quotes-kept", "OS/ARCH"),
        ("A=\"abc\"\r\n", "quotes-kept", "A"),
        ("A=abc\r\n", "carriage-return", "A"),
        ("A=\"a b\"\r\n", "carriage-return", ""),
        ("A=\"abc\nB=1", "quote-not-closed", "A"),
        ("A=\"C:\\\"", "quote-not-closed", "A"),
        ("A=\"C:\\\"\nBC=\"x\"", "swallowed-lines", "A"),
        ("A='b'", "single-quotes", "A"),
        ("A=1 A=2", "repeated-attribute", "A"),
        ("A=[B=1,\nb=2]", "repeated-member", "A/B"),
        ("9A=1", "renamed", "9A"),
        ("A=1 ; B=2", "dropped-character", ""),
        ("A= ]\nB", "dropped-character", ""),
        ("A==b", "dropped-character", ""),
        ("A=\"x\0y\"", "nul-byte", "A"),
    ] {
        let notices = defaults(text).notices;
        let found: Vec<_> = notices.iter().map(|n| (n.kind.id(), n.key.as_str())).collect();
        assert!(found.contains(&(id, key)), "{text:?}: {found:?}");
        for notice in &notices {
            assert!(!notice.picture("f", text, false).is_empty());
        }
    }
    let (_, parsed) = parse_bytes(b"# \xe4\nA=\"\xe4\" B=x", Level::Defaults, "f", Rules::DEFAULTS);
    let found: Vec<_> = parsed.notices.iter().map(|n| (n.kind.id(), n.line)).collect();
    assert_eq!(found, [("not-utf8", 2)], "a comment may hold anything");
}

#[test]
fn nothing_is_noted_of_a_text_that_says_what_it_means() {
    let text = "# head\nA = 1\nB = \"x # y\" # more\nOS = [ ARCH = \"x\", # c\n MACHINE = \"pc\" ]\n\
                OPT = \"\n  <timer name='rtc'/>\n  <a B=\\\"c\\\"/>\"\nU = \"\u{fffd}\"\n#\n";
    let parsed = defaults(text);
    assert_eq!((parsed.notices, parsed.error), (vec![], None));
}

#[test]
fn a_long_text_is_read_in_linear_time() {
    let texts = [
        "A=1 ".repeat(50_000),
        "A=[B=1]".repeat(30_000),
        format!("A=[{}]", vec!["B=1"; 50_000].join(",")),
        format!("A=={}1", " ".repeat(200_000)),
        format!("{}A=1", "\n \t".repeat(100_000)),
        "A=\"".repeat(70_000),
        "A=\\\"".repeat(50_000),
        "A=\"x\\\" ".repeat(30_000),
        ";".repeat(200_000),
        "A= # ".repeat(50_000),
        "\n\n,".repeat(70_000),
    ];
    for text in texts {
        let start = std::time::Instant::now();
        let parsed = defaults(&text);
        assert!(parsed.notices.len() <= 200);
        assert!(start.elapsed().as_secs() < 20, "{}…", &text[..20]);
    }
}
