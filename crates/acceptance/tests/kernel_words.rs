//! The words that no truth has: commands put to the kernel's tools on a golden pool, imported
//! read-only in the VM, and to the program on the same images. Line by line they say the same.

#![allow(clippy::unwrap_used)]

use testkit::{Ran, Vm, golden_copy, temp_dir, vm};

/// What is asked of `mir`: snapshots, bookmarks, clones, and quotas of users, groups and projects.
const ASKED: &[&str] = &[
    // what was written since, of heads, clones and snapshots, and since bookmarks
    "zfs get -Hp -r -t all written@s1,written@s2,written@renamed,written@q,written@p1,written@p2 mir",
    "zfs get -Hp written#b1,written#b3,written#nosuch,written@nosuch mir/work",
    "zfs get -Hp written#mir/work#b1,written@mir/work@s2,written@mir/base@p1 mir/work mir/clone mir/promoted",
    "zfs get -r written,written@s2 mir",
    "zfs list -o name,written@s2,used,refer -t all -r mir",
    // accounts as people read them; no id but root's has a name
    "zfs userspace mir/quota",
    "zfs groupspace mir/quota",
    "zfs projectspace mir/quota",
    "zfs userspace -p mir/quota@q",
    "zfs userspace -n -o used,name -S used mir/quota@q",
    "zfs groupspace -o name,objused,objquota,used,quota -s quota mir/quota",
    "zfs projectspace -H -o objquota,name mir/quota",
    "zfs userspace -t all -S name mir/quota",
    "zfs get -r userquota@1001,groupquota@2002,projectquota@42,userobjused@0 mir/quota mir/work",
    "zfs list -o name,userused@0,projectused@42,groupobjquota@2002 -r mir",
    // order, columns, depth, kinds, sources
    "zfs list -t all -S used -o name,used,creation -r mir",
    "zfs list -t all -s type -s refer -o type,refer,name",
    "zfs list -o space -r mir",
    "zfs list -o name,origin,clones,userrefs,mountpoint,compression,xattr,dnodesize -t all",
    "zfs list -d 1 -t snapshot mir/work",
    "zfs list -H -t bookmark -r -o name,creation,createtxg mir",
    "zfs get -r -d 1 -s local all mir",
    "zfs get -s inherited -o property,value,source all mir/quota/child",
    "zfs get -t snapshot -r -o name,value,property used,refer,defer_destroy mir/promoted",
    "zfs get -t bookmark -r all mir/work",
    "zpool list -o name,size,health,guid,version,comment,bootfs,feature@bookmarks,dedup mir",
    "zpool get -o property,value,source failmode,autoexpand,ashift,feature@bookmark_v2 mir",
];

#[test]
fn a_pool_of_snapshots_and_quotas() {
    if !vm::wanted("that the program's words about a golden pool are the kernel's") {
        return;
    }
    const CUT: &str = "---- cut ----";
    let images = golden_copy("mir");
    let mut script = String::from(
        "export TZ=UTC LC_ALL=C.UTF-8\nzpool import -o readonly=on -o cachefile=none -d /d mir\n",
    );
    for command in ASKED {
        script += &format!("{command} 2>&1\necho \"= $?\"\necho '{CUT}'\n");
    }
    let told = Vm::new(images.path()).run(&script).expect_ok();
    let mut told = told.out.split(CUT);
    let aside = temp_dir();
    let mut wrong = Vec::new();
    for command in ASKED {
        let theirs = told.next().unwrap().trim_start_matches('\n');
        let mut thumper = acceptance::thumper(&aside.path().join("pools"));
        thumper.env("LC_ALL", "C.UTF-8").arg("-d").arg(images.path());
        let ran = Ran::of(thumper.args(command.split(' ')));
        let ours = format!("{}{}= {}\n", ran.out, ran.err, ran.status);
        if ours != theirs {
            wrong.push(format!("$ {command}\n{theirs}--\n{ours}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ASKED.len(), wrong.join("\n"));
}
