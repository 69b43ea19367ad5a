//! Rules one by one, each with what OpenNebula 7.4 does (and what is mended, where that differs).

use kvmad::domain::{Domain, Refusal, Style};

use crate::support::Case;

const DEFAULTS: &str = "OS=[ARCH=\"x86_64\", MACHINE=\"q35\"]\n";

fn action(template: &str) -> String {
    // The first of a name counts, so these stand in only where the template has none.
    format!(
        "<VM><ID>7</ID><UID>300</UID><GID>31</GID><NAME>n</NAME><STIME>1700000000</STIME><TEMPLATE>{template}\
         <CPU>1</CPU><MEMORY>1024</MEMORY></TEMPLATE><USER_TEMPLATE><HYPERV_TIMERS>&lt;timer/&gt;</HYPERV_TIMERS>\
         <MEMORY_TUNE_OFFSET>99</MEMORY_TUNE_OFFSET></USER_TEMPLATE><HISTORY_RECORDS><HISTORY><DS_ID>100</DS_ID>\
         </HISTORY></HISTORY_RECORDS></VM>"
    )
}

fn case(template: &str, defaults: &str) -> Case {
    Case::of(&action(template), &format!("{DEFAULTS}{defaults}"), "", "")
}

/// The domain as OpenNebula makes it.
fn theirs(template: &str, defaults: &str) -> Domain {
    case(template, defaults).generate().expect(template)
}

/// The mended domain.
fn mended(template: &str, defaults: &str) -> Domain {
    case(template, defaults).with(Style::Mended).generate().expect(template)
}

/// All values at paths that end with `path` (numbers in brackets left out), joined by a blank.
fn at(domain: &Domain, path: &str) -> String {
    let plain = |text: &str| {
        let mut out = String::new();
        let mut inside = false;
        for c in text.chars() {
            match c {
                '[' => inside = true,
                ']' => inside = false,
                c if !inside => out.push(c),
                _ => {}
            }
        }
        out
    };
    let lines = domain.lines();
    let found = lines.iter().filter(|line| plain(&line.path).ends_with(&format!("/{path}")));
    found.map(|line| line.value.unwrap_or("-")).collect::<Vec<_>>().join(" ")
}

const EMPTY: &str = "<![CDATA[]]>";

#[test]
fn an_empty_string_of_the_vm_hides_a_default_and_an_empty_flag_does_not() {
    let vm = format!("<OS><KERNEL>{EMPTY}</KERNEL></OS><FEATURES><ACPI>{EMPTY}</ACPI></FEATURES>");
    let defaults = "OS=[ARCH=\"x86_64\", KERNEL=\"/k\"] FEATURES=[ACPI=\"yes\"]";
    let domain = theirs(&vm, defaults);
    assert_eq!(at(&domain, "os/kernel"), "");
    assert_eq!(at(&domain, "features/acpi"), "-");
    assert_eq!(at(&theirs("", defaults), "os/kernel"), "/k");
}

#[test]
fn true_and_1_are_no_and_hide_a_yes() {
    for word in ["true", "1", "on", "no"] {
        let vm = format!("<FEATURES><ACPI>{word}</ACPI></FEATURES>");
        assert_eq!(at(&theirs(&vm, "FEATURES=[ACPI=\"yes\"]"), "features"), "", "{word}");
    }
}

#[test]
fn a_bad_number_of_io_threads_leaves_its_digits_unless_a_default_is_good() {
    let vm = "<FEATURES><IOTHREADS>2x</IOTHREADS></FEATURES>";
    assert_eq!(at(&theirs(vm, ""), "iothreads"), "2");
    assert_eq!(at(&theirs(vm, "FEATURES=[IOTHREADS=\"5\"]"), "iothreads"), "5");
}

#[test]
fn shares_are_rounded_up_in_32_bit_floats() {
    let shares = |cpu: &str, version: &str| {
        let host =
            if version.is_empty() { String::new() } else { format!("CGROUPS_VERSION=\"{version}\"\n") };
        let case = Case::of(&action(&format!("<CPU>{cpu}</CPU>")), DEFAULTS, &host, "");
        at(&case.generate().expect(cpu), "cputune/shares")
    };
    for (cpu, v2) in
        [("0.3", "31"), ("0.6", "61"), ("1.2", "121"), ("0.15", "16"), ("0.07", "7"), ("0.29", "29")]
    {
        assert_eq!(shares(cpu, "2"), v2, "{cpu}");
    }
    for (cpu, v1) in
        [("0.1", "103"), ("0.07", "72"), ("0.001", "2"), ("300", "262144"), ("<![CDATA[]]>", "2"), ("x", "2")]
    {
        assert_eq!(shares(cpu, ""), v1, "{cpu}");
    }
    assert_eq!((shares("0.001", "2"), shares("300", "2")), ("1".to_owned(), "10000".to_owned()));
    assert_eq!(shares("1", "2x"), "1024", "the residue of the host's bad version is lost at the next level");
    assert_eq!(
        at(&theirs("", "CGROUPS_VERSION=2x"), "cputune/shares"),
        "100",
        "that of the last level counts"
    );
}

#[test]
fn vcpu_max_stands_in_for_vcpu_and_an_empty_vcpu_hides_the_default() {
    let domain = theirs("<VCPU_MAX>8</VCPU_MAX>", "");
    assert_eq!((at(&domain, "vcpu"), at(&domain, "vcpu/@current")), ("8".to_owned(), "8".to_owned()));
    let empty = format!("<VCPU>{EMPTY}</VCPU>");
    assert_eq!(at(&theirs(&empty, "VCPU=\"9\""), "vcpu"), "");
    assert_eq!(at(&theirs("", "VCPU=\"9\""), "vcpu"), "9");
}

#[test]
fn the_user_part_of_a_template_has_no_say() {
    let sev =
        "<MEMORY_ENCRYPTION><TYPE>SEV</TYPE></MEMORY_ENCRYPTION><FEATURES><HYPERV>yes</HYPERV></FEATURES>";
    let domain = mended(sev, "");
    assert_eq!((at(&domain, "hard_limit"), at(&domain, "clock/timer")), ("1024".to_owned(), String::new()));
    let more =
        "<HYPERV_TIMERS>&lt;timer name='rtc'/&gt;</HYPERV_TIMERS><MEMORY_TUNE_OFFSET>99</MEMORY_TUNE_OFFSET>";
    let domain = mended(&format!("{sev}{more}"), "");
    assert_eq!(
        (at(&domain, "hard_limit"), at(&domain, "clock/timer/@name")),
        ("1123".to_owned(), "rtc".to_owned())
    );
}

#[test]
fn the_forms_of_memory() {
    let sizes = |vm: &str| {
        let domain = theirs(vm, "MEMORY_SLOTS=16");
        ["memory", "currentMemory", "maxMemory", "maxMemory/@slots"].map(|path| {
            // Only those of the domain itself.
            domain.root.elements().find(|e| e.name == path.split('/').next().unwrap_or("")).map_or_else(
                String::new,
                |e| {
                    path.split_once('@')
                        .map_or_else(|| e.content(), |(_, a)| e.attribute(a).unwrap_or("").to_owned())
                },
            )
        })
    };
    let max = |more: &str| format!("<MEMORY>1024</MEMORY><MEMORY_MAX>2048</MEMORY_MAX>{more}");
    let hotplug = "<MEMORY_RESIZE_MODE>HOTPLUG</MEMORY_RESIZE_MODE>";
    assert_eq!(sizes("<MEMORY>1024</MEMORY><MEMORY_MAX>1024</MEMORY_MAX>"), ["1048576", "", "", ""]);
    assert_eq!(sizes(&max("")), ["2097152", "1048576", "", ""]);
    assert_eq!(sizes(&max(hotplug)), ["1048576", "", "2097152", "16"]);
    assert_eq!(
        sizes(&max("<MEMORY_RESIZE_MODE>hotplug</MEMORY_RESIZE_MODE>")),
        ["2097152", "1048576", "", ""]
    );
    let topology = "<TOPOLOGY><CORES>2</CORES></TOPOLOGY>";
    assert_eq!(sizes(&max(&format!("{hotplug}{topology}"))), ["1048576", "", "", ""]);
}

#[test]
fn a_missing_or_bad_memory_is_refused_with_its_place() {
    let without = action("").replace("<MEMORY>1024</MEMORY>", "<MEMORY/>");
    let refused = Case::of(&without, DEFAULTS, "", "").generate().err();
    assert_eq!(refused, Some(Refusal::NoMemory));
    let text = case("<MEMORY>1G</MEMORY>", "").generate().expect_err("refused").to_string();
    assert!(text.starts_with("MEMORY (VM action.xml:1) is \"1G\""), "{text}");
}

const PINNED: &str = "<TOPOLOGY><PIN_POLICY>core</PIN_POLICY><SOCKETS>1</SOCKETS></TOPOLOGY>\
    <NUMA_NODE><TOTAL_CPUS>2</TOTAL_CPUS><CPUS/><MEMORY>1</MEMORY></NUMA_NODE>\
    <NUMA_NODE><TOTAL_CPUS>2</TOTAL_CPUS><CPUS>4,5</CPUS><MEMORY>1</MEMORY></NUMA_NODE>";

#[test]
fn a_first_node_without_cpus_leaves_a_comma_which_is_mended() {
    let domain = theirs(PINNED, "");
    assert_eq!(at(&domain, "emulatorpin/@cpuset"), ",4,5");
    assert_eq!(
        (at(&domain, "vcpupin/@vcpu"), at(&domain, "vcpupin/@cpuset")),
        ("0 1".to_owned(), "4 5".to_owned())
    );
    assert_eq!(at(&mended(PINNED, ""), "emulatorpin/@cpuset"), "4,5");
    assert_eq!(at(&theirs(PINNED, "EMULATOR_CPUS=\"0-1\""), "emulatorpin/@cpuset"), "0-1");
    let none = "<TOPOLOGY><PIN_POLICY>SHARED</PIN_POLICY></TOPOLOGY>";
    assert_eq!(at(&theirs(none, ""), "emulatorpin/@cpuset"), "");
    assert_eq!(at(&theirs(none, ""), "emulatorpin"), "-");
    assert_eq!(at(&mended(none, ""), "emulatorpin"), "");
}

#[test]
fn fewer_cpus_than_vcpus_pin_as_far_as_they_reach_and_say_so() {
    let vm = PINNED.replace("4,5", "4");
    let domain = theirs(&vm, "");
    assert_eq!(at(&domain, "vcpupin/@cpuset"), "4");
    assert!(domain.warnings.iter().any(|w| w.contains("NUMA_NODE[1].CPUS")), "{:?}", domain.warnings);
}

#[test]
fn memory_access_is_checked_with_huge_pages_only_which_is_mended() {
    let vm = |access: &str, pages: &str| {
        format!(
            "<TOPOLOGY><MEMORY_ACCESS>{access}</MEMORY_ACCESS>{pages}</TOPOLOGY>\
             <NUMA_NODE><TOTAL_CPUS>1</TOTAL_CPUS><MEMORY>1</MEMORY></NUMA_NODE>"
        )
    };
    let pages = "<HUGEPAGE_SIZE>2</HUGEPAGE_SIZE>";
    assert_eq!(at(&theirs(&vm("Bogus", ""), ""), "cell/@memAccess"), "Bogus");
    assert_eq!(at(&mended(&vm("Bogus", ""), ""), "cell/@memAccess"), "");
    assert_eq!(at(&theirs(&vm("Bogus", pages), ""), "cell/@memAccess"), "");
    assert_eq!(at(&theirs(&vm("Shared", pages), ""), "cell/@memAccess"), "shared");
    assert_eq!(at(&theirs(&vm("x", pages), ""), "hugepages/page/@size"), "2048");
}

#[test]
fn nodes_without_memory_nodes_give_an_empty_numatune_which_is_mended() {
    let vm =
        "<TOPOLOGY><A>b</A></TOPOLOGY><NUMA_NODE><TOTAL_CPUS>1</TOTAL_CPUS><MEMORY>1</MEMORY></NUMA_NODE>";
    assert_eq!(at(&theirs(vm, ""), "numatune"), "-");
    assert_eq!(at(&mended(vm, ""), "numatune"), "");
    let nodes = "<NUMA_NODE><MEMORY>1</MEMORY></NUMA_NODE>";
    assert_eq!(at(&theirs(nodes, ""), "cpu"), "", "nothing of a node without topology, model or hotplug");
}

#[test]
fn distances_follow_the_list() {
    let node = "<NUMA_NODE><MEMORY>1</MEMORY><DISTANCE>1-0:40, 2:15,2:16,7:9,x</DISTANCE></NUMA_NODE>";
    let vm = format!("<TOPOLOGY><A>b</A></TOPOLOGY>{node}{node}{node}");
    let domain = theirs(&vm, "");
    let cell =
        domain.root.elements().find(|e| e.name == "cpu").and_then(|cpu| {
            cpu.elements().find(|e| e.name == "numa").and_then(|numa| numa.elements().next())
        });
    let distances = cell.and_then(|cell| cell.elements().next()).expect("distances");
    let values: Vec<_> = distances.elements().filter_map(|sibling| sibling.attribute("value")).collect();
    // " 2" is no number, so it is node 0 that gets 15.
    assert_eq!(values, ["15", "40", "16"]);
}

#[test]
fn secure_boot_brings_smm_whatever_the_firmware() {
    let domain = theirs("<OS><FIRMWARE>BIOS</FIRMWARE><FIRMWARE_SECURE>yes</FIRMWARE_SECURE></OS>", "");
    assert_eq!((at(&domain, "smm/@state"), at(&domain, "loader")), ("on".to_owned(), String::new()));
}

#[test]
fn acpi_on_arm_with_automatic_firmware_is_an_empty_features_which_is_mended() {
    let vm = "<OS><ARCH>aarch64</ARCH><MACHINE>virt</MACHINE><FIRMWARE>UEFI</FIRMWARE></OS>\
              <FEATURES><ACPI>yes</ACPI></FEATURES>";
    let domain = theirs(vm, "");
    assert_eq!((at(&domain, "features"), at(&domain, "features/acpi")), ("-".to_owned(), String::new()));
    assert_eq!(at(&domain, "os/@firmware"), "efi");
    assert_eq!(at(&mended(vm, ""), "features/acpi"), "-");
}

#[test]
fn localtime_alone_brings_the_timers_and_evc_beats_passthrough() {
    let defaults = "HYPERV_TIMERS=\"<timer name='rtc'/>\" EVC_MODE=\"Haswell\"";
    let vm = "<FEATURES><LOCALTIME>yes</LOCALTIME></FEATURES><CPU_MODEL><MODEL>host-passthrough</MODEL></CPU_MODEL>";
    let domain = theirs(vm, defaults);
    assert_eq!(
        (at(&domain, "clock/@offset"), at(&domain, "clock/timer/@name")),
        ("localtime".into(), "rtc".into())
    );
    assert_eq!((at(&domain, "cpu/@mode"), at(&domain, "cpu/model")), ("custom".into(), "Haswell".into()));
}

#[test]
fn a_password_that_looks_like_markup_is_that_password() {
    let vm = "<GRAPHICS><TYPE>VNC</TYPE><PASSWD>a'b&lt;c&amp;d</PASSWD></GRAPHICS>";
    for domain in [theirs(vm, ""), mended(vm, "")] {
        assert_eq!(
            (at(&domain, "graphics/@passwd"), at(&domain, "graphics/@type")),
            ("a'b<c&d".into(), "vnc".into())
        );
        assert!(domain.to_xml().contains("passwd='a&apos;b&lt;c&amp;d'"));
    }
}

fn disk(id: usize, target: &str, more: &str) -> String {
    format!("<DISK><DISK_ID>{id}</DISK_ID><TARGET>{target}</TARGET>{more}</DISK>")
}

#[test]
fn io_threads_go_round_and_explicit_ones_do_not_count() {
    let vm = format!(
        "<FEATURES><IOTHREADS>2</IOTHREADS></FEATURES>{}{}{}{}",
        disk(0, "vda", ""),
        disk(1, "vdb", "<IOTHREAD>2</IOTHREAD>"),
        disk(2, "vdc", "<IOTHREAD>3</IOTHREAD>"),
        disk(3, "sda", "")
    );
    let domain = theirs(&vm, "");
    assert_eq!(at(&domain, "disk/driver/@iothread"), "1 2 2");
    assert_eq!(at(&domain, "controller/driver/@iothread"), "1");
}

#[test]
fn sd_disks_take_their_bus_from_sd_disk_bus() {
    let vm = |target: &str, bus: &str, machine: &str| {
        let bus = if bus.is_empty() { String::new() } else { format!("<SD_DISK_BUS>{bus}</SD_DISK_BUS>") };
        theirs(&format!("<OS><MACHINE>{machine}</MACHINE>{bus}</OS>{}", disk(0, target, "")), "")
    };
    let address =
        |domain: &Domain| (at(domain, "disk/address/@controller"), at(domain, "disk/address/@target"));
    for machine in ["pc", "q35"] {
        let domain = vm("sda", "", machine);
        assert_eq!((at(&domain, "target/@bus"), address(&domain)), (String::new(), ("0".into(), "0".into())));
        assert_eq!(at(&vm("sda", "scsi", machine), "target/@bus"), "scsi");
    }
    for (machine, controller) in [("pc", "0"), ("q35", "1")] {
        let domain = vm("sdc", "sata", machine);
        assert_eq!(address(&domain), (controller.into(), "0".into()));
        let sata =
            domain.root.elements().flat_map(|d| d.elements()).find(|e| e.attribute("type") == Some("sata"));
        assert_eq!(sata.and_then(|e| e.attribute("index")), Some(controller));
    }
    for (target, number) in [("sdaa", "26"), ("sdiv", "255"), ("sdiw", "")] {
        assert_eq!(address(&vm(target, "", "q35")).1, number, "{target}");
    }
}

#[test]
fn an_ide_cd_rom_on_sdb_has_a_scsi_address_which_is_mended() {
    let vm = format!("<OS><MACHINE>pc</MACHINE></OS>{}", disk(0, "sdb", "<TYPE>CDROM</TYPE>"));
    let domain = theirs(&vm, "");
    assert_eq!((at(&domain, "target/@bus"), at(&domain, "disk/address/@target")), ("ide".into(), "1".into()));
    assert_eq!(at(&mended(&vm, ""), "disk/address/@target"), "");
}

#[test]
fn disk_type_rbd_decides_for_all_that_has_no_place_of_its_own() {
    let rbd = "<DISK_TYPE>RBD</DISK_TYPE>";
    let fs = theirs(&disk(3, "vda", &format!("<TYPE>fs</TYPE>{rbd}")), "");
    assert_eq!((at(&fs, "source/@name"), at(&fs, "disk/@device")), ("one/one-sys-7-3".into(), "disk".into()));
    let cdrom = theirs(&disk(3, "vda", &format!("<TYPE>CDROM</TYPE><SOURCE>a/b</SOURCE>{rbd}")), "");
    assert_eq!((at(&cdrom, "source/@protocol"), at(&cdrom, "disk/@device")), ("rbd".into(), "disk".into()));
    assert_eq!((at(&cdrom, "target/@bus"), at(&cdrom, "disk/driver/@type")), ("sata".into(), "raw".into()));
}

#[test]
fn limits_of_disks() {
    let tune = |more: &str, defaults: &str, style: Style| {
        let domain = case(&disk(0, "vda", more), defaults).with(style).generate().expect(more);
        let disk = domain.root.elements().flat_map(|e| e.elements()).find(|e| e.name == "disk").cloned();
        let tune = disk.and_then(|disk| disk.elements().find(|e| e.name == "iotune").cloned());
        tune.map(|t| {
            t.elements().map(|e| format!("{}={}", e.name, e.content())).collect::<Vec<_>>().join(" ")
        })
    };
    let their = |more: &str, defaults: &str| tune(more, defaults, Style::AsOpenNebula);
    let max = "<TOTAL_BYTES_SEC>5</TOTAL_BYTES_SEC><TOTAL_BYTES_SEC_MAX>5</TOTAL_BYTES_SEC_MAX>";
    assert_eq!(their(max, "").as_deref(), Some("total_bytes_sec=5"));
    assert_eq!(their("<TOTAL_BYTES_SEC_MAX_LENGTH>5</TOTAL_BYTES_SEC_MAX_LENGTH>", ""), None);
    let read = "<READ_BYTES_SEC>7</READ_BYTES_SEC>";
    assert_eq!(their(read, "DISK=[TOTAL_BYTES_SEC=\"9\"]").as_deref(), Some("total_bytes_sec=9"));
    assert_eq!(their(read, "").as_deref(), Some("read_bytes_sec=7"));
    assert_eq!(their("<WRITE_IOPS_SEC>5k</WRITE_IOPS_SEC>", "").as_deref(), Some("write_iops_sec=0"));
    let bad = "<TOTAL_IOPS_SEC_MAX>x</TOTAL_IOPS_SEC_MAX>";
    assert_eq!(their(bad, "").as_deref(), Some(""));
    assert_eq!(tune(bad, "", Style::Mended), None);
    let burst = "<READ_IOPS_SEC>5</READ_IOPS_SEC><READ_IOPS_SEC_MAX>9</READ_IOPS_SEC_MAX>\
                 <READ_IOPS_SEC_MAX_LENGTH>3</READ_IOPS_SEC_MAX_LENGTH><SIZE_IOPS_SEC>4</SIZE_IOPS_SEC>";
    let all = "read_iops_sec=5 read_iops_sec_max=9 read_iops_sec_max_length=3 size_iops_sec=4";
    assert_eq!(their(burst, "").as_deref(), Some(all));
}

#[test]
fn numbers_behind_an_encryption_are_hexadecimal_which_is_mended() {
    let one = "<MEMORY_ENCRYPTION><TYPE>SEV</TYPE></MEMORY_ENCRYPTION>";
    let defaults = "MEMORY_TUNE_OFFSET=256";
    let domain = theirs(one, defaults);
    let numbers = |d: &Domain| ["hard_limit", "one:uid", "one:gid", "one:stime"].map(|path| at(d, path));
    assert_eq!(numbers(&domain), ["500", "12c", "1f", "6553f100"]);
    assert_eq!(numbers(&mended(one, defaults)), ["1280", "300", "31", "1700000000"]);
    let two = format!(
        "{one}<MEMORY_ENCRYPTION><TYPE>sev-es SEV</TYPE></MEMORY_ENCRYPTION>\
        <MEMORY_ENCRYPTION><TYPE>SEV-SNP</TYPE></MEMORY_ENCRYPTION>"
    );
    assert_eq!(at(&theirs(&two, ""), "launchSecurity/policy"), "0x00000003 0x00000003");
    let domain = mended(&two, "");
    assert_eq!(at(&domain, "launchSecurity/policy"), "0x00000003");
    assert_eq!(domain.warnings.len(), 2, "{:?}", domain.warnings);
    let es = "<MEMORY_ENCRYPTION><TYPE>SEV-ES</TYPE></MEMORY_ENCRYPTION>";
    assert_eq!(at(&theirs(es, ""), "launchSecurity/policy"), "0x00000007");
}

fn pci(more: &str) -> String {
    format!(
        "<PCI><DOMAIN>0000</DOMAIN><BUS>3b</BUS><SLOT>00</SLOT><FUNCTION>1</FUNCTION><VENDOR>10DE</VENDOR>\
         <DEVICE>1EB8</DEVICE><CLASS>0302</CLASS>{more}</PCI>"
    )
}

#[test]
fn passed_through_devices() {
    let uuid = "<UUID>u</UUID>";
    for (mode, kind, managed) in
        [("", "mdev", ""), ("Legacy", "mdev", ""), ("NVIDIA", "pci", "no"), ("other", "pci", "yes")]
    {
        let mode = if mode.is_empty() { String::new() } else { format!("<MDEV_MODE>{mode}</MDEV_MODE>") };
        let domain = theirs(&pci(&format!("{uuid}{mode}")), "");
        assert_eq!(
            (at(&domain, "hostdev/@type"), at(&domain, "hostdev/@managed")),
            (kind.into(), managed.into())
        );
    }
    let four = "<VM_DOMAIN>0x0000</VM_DOMAIN><VM_BUS>0x05</VM_BUS><VM_SLOT>0x01</VM_SLOT><VM_FUNCTION>0</VM_FUNCTION>";
    assert_eq!(at(&theirs(&pci(four), ""), "hostdev/address/@slot"), "0x01");
    let index = theirs(&pci(&format!("{four}<VM_BUS_INDEX>9</VM_BUS_INDEX>")), "");
    assert_eq!(
        (at(&index, "hostdev/address/@bus"), at(&index, "hostdev/address/@slot")),
        ("9".into(), "0x00".into())
    );
    assert_eq!(at(&index, "source/address/@bus"), "0x3b");
    let missing = pci("").replace("<FUNCTION>1</FUNCTION>", "");
    let domain = theirs(&missing, "");
    assert_eq!(
        (at(&domain, "hostdev/@type"), at(&domain, "one:pci_devices")),
        (String::new(), "10de:1eb8:0302".into())
    );
    assert!(domain.warnings.iter().any(|w| w.contains("PCI[0]")));
}

#[test]
fn a_dedicated_root_behind_an_empty_numa_node_counts_the_written_nodes_only() {
    let vm = format!(
        "<TOPOLOGY><A>b</A></TOPOLOGY><NUMA_NODE><TOTAL_CPUS>0</TOTAL_CPUS><MEMORY>1</MEMORY></NUMA_NODE>\
         <NUMA_NODE><TOTAL_CPUS>1</TOTAL_CPUS><MEMORY>1</MEMORY></NUMA_NODE>{}",
        pci("<ROOT>dedicated</ROOT><NUMA_NODE>1</NUMA_NODE>")
    );
    let domain = theirs(&vm, "Q35_NUMA_PCIE=\"YES\"");
    assert_eq!(at(&domain, "target/@busNr"), "0x30 0xa0");
    let expanders: Vec<_> = domain
        .root
        .elements()
        .flat_map(|e| e.elements())
        .filter(|e| e.attribute("model") == Some("pcie-expander-bus"))
        .filter_map(|e| e.attribute("index"))
        .collect();
    assert_eq!(expanders, ["12", "12"]);
}

#[test]
fn a_firmware_file_must_be_listed_where_that_is_asked() {
    let vm = "<OS><FIRMWARE>/x/OVMF.fd</FIRMWARE></OS>";
    let refused = case(vm, "OVMF_UEFIS=\"/a /b\"").with(Style::Mended).generate().expect_err("not listed");
    assert!(matches!(&refused, Refusal::Firmware { known, .. } if known == &["/a", "/b"]), "{refused}");
    assert_eq!(
        at(&mended(vm, "OVMF_UEFIS=\"/a /x/OVMF.fd\""), "nvram"),
        "/var/lib/one//datastores/100/7/n_VARS.fd"
    );
    let mut unchecked = case(vm, "").with(Style::Mended);
    unchecked.options.check_firmware = false;
    assert_eq!(at(&unchecked.generate().expect("not asked"), "loader"), "/x/OVMF.fd");
}

#[test]
fn refusals_say_what_to_do() {
    let no_arch = Case::of(&action(""), "", "", "").generate().expect_err("no ARCH");
    assert_eq!(no_arch, Refusal::NoArch);
    let no_target =
        case("<DISK><DISK_ID>0</DISK_ID></DISK>", "").generate().expect_err("no TARGET").to_string();
    assert!(no_target.starts_with("DISK[0] (VM action.xml:1) has no TARGET"), "{no_target}");
    let no_id = case("<DISK><TARGET>vda</TARGET></DISK>", "").generate().expect_err("no DISK_ID").to_string();
    assert!(no_id.contains("DISK_ID"), "{no_id}");
    let pending = action("").replace("<HISTORY><DS_ID>100</DS_ID></HISTORY>", "");
    assert_eq!(Case::of(&pending, DEFAULTS, "", "").generate().expect_err("pending"), Refusal::NotPlaced);
}

#[test]
fn sizes_without_end_are_refused() {
    for (vm, defaults) in [
        ("", "Q35_ROOT_PORTS=2000000000"),
        (
            "<TOPOLOGY><PIN_POLICY>SHARED</PIN_POLICY></TOPOLOGY><NUMA_NODE><TOTAL_CPUS>4000000000</TOTAL_CPUS>\
          <CPUS>1</CPUS></NUMA_NODE>",
            "",
        ),
    ] {
        assert!(matches!(case(vm, defaults).generate(), Err(Refusal::TooMany { .. })), "{vm}{defaults}");
    }
    let nodes = format!(
        "<TOPOLOGY><A>b</A></TOPOLOGY>{}",
        "<NUMA_NODE><DISTANCE>0:10</DISTANCE></NUMA_NODE>".repeat(999)
    );
    assert!(matches!(case(&nodes, "").generate(), Err(Refusal::TooMany { .. })));
}

#[test]
fn ipv6_hosts_are_taken_apart_which_is_mended() {
    let vm =
        disk(0, "vda", "<TYPE>RBD</TYPE><SOURCE>a</SOURCE><CEPH_HOST>[::1]:7 fe80::1 h:8 : x</CEPH_HOST>");
    let hosts = |d: &Domain| (at(d, "host/@name"), at(d, "host/@port"));
    assert_eq!(hosts(&mended(&vm, "")), ("::1 fe80::1 h x".into(), "7 6789 8 6789".into()));
    assert_eq!(hosts(&theirs(&vm, "")), ("[ fe80 h x".into(), "1] 1 8 6789".into()));
}

#[test]
fn raw_of_the_vm_and_of_the_defaults_are_both_used_and_must_be_markup() {
    let raw =
        |kind: &str, data: &str| format!("<RAW><TYPE>{kind}</TYPE><DATA><![CDATA[{data}]]></DATA></RAW>");
    let vm =
        format!("{}{}{}", raw("KVM", "<a/>"), raw("xen", "<x/>"), raw("kvm", "<!-- c --><b y='1'>t</b>"));
    let domain = theirs(&vm, "RAW=\"<qemu:commandline><qemu:arg value='-x'/></qemu:commandline>\"");
    let names: Vec<_> = domain.root.elements().map(|e| e.name.to_string()).collect();
    assert_eq!(&names[names.len() - 4..], ["a", "b", "qemu:commandline", "metadata"]);
    let bad = case(&raw("kvm", "<a>\n <b></a>"), "").generate().expect_err("not well-formed").to_string();
    assert!(bad.contains("RAW[0].DATA") && bad.contains("line 2"), "{bad}");
    for data in ["</domain>", "</markup><markup>", "&foo;", "<!DOCTYPE a>", "<a b='1' b='2'/>", "<1/>", "<"] {
        assert!(matches!(case(&raw("kvm", data), "").generate(), Err(Refusal::Markup { .. })), "{data}");
    }
}

#[test]
fn every_value_says_what_gave_it() {
    let domain = mended("<VCPU>2</VCPU>", "FEATURES=[ACPI=\"yes\"]\nNIC=[MODEL=\"virtio\"]");
    let from = |path: &str| {
        let lines = domain.lines();
        lines.iter().find(|line| line.path == path).map(|line| line.from.to_string()).unwrap_or_default()
    };
    assert_eq!(from("/domain/vcpu"), "VCPU (VM action.xml:1)");
    assert_eq!(from("/domain/os/type/@arch"), "OS.ARCH (defaults file defaults.conf:1)");
    assert_eq!(from("/domain/features/acpi"), "FEATURES.ACPI (defaults file defaults.conf:2)");
    assert_eq!(from("/domain/memory"), "MEMORY in KiB, from MEMORY (VM action.xml:1)");
    assert_eq!(from("/domain/devices/emulator"), "built-in");
}
