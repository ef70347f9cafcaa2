//! Who is who on the grid: certificates, VOMS attributes and tokens, each made by the tests, mapped to owners.

use std::fs;

use client::Client;
use testkit::{Ran, noise};

use crate::gate::{ROOT, Site, curl, hand_over, tool};

/// Who is who: alice by her name, others by their organization; names of tokens.
const TABLE: &[u8] = b"gsi alice 1001 2001\ngsi @cms 1003 2001\ngsi @atlas 1002 2002\n\
    token cms 1003 2001\ntoken atlas 1002 2002\n";
/// Makes, in the directory that it runs in: an authority, certificates of a host, three people and a VOMS server, and
/// their proxies with what that server says of them.
const CERTIFICATES: &str = r#"
set -e
mkdir ca vomsdir vomsdir/cms vomsdir/atlas
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /O=Test/CN=CA -keyout ca.key -out ca/ca.pem \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign
policy=ca/$(openssl x509 -hash -noout -in ca/ca.pem).signing_policy
echo "access_id_CA X509 '/O=Test/CN=CA'" > $policy
echo "pos_rights globus CA:sign" >> $policy
echo "cond_subjects globus '\"/O=Test/*\"'" >> $policy
openssl rehash ca
for name in localhost alice bob carol voms; do
    openssl req -newkey rsa:2048 -nodes -subj /O=Test/CN=$name -keyout $name.key -out $name.csr
    echo "subjectAltName=DNS:$name" > extensions
    echo "keyUsage=digitalSignature,keyEncipherment" >> extensions
    openssl x509 -req -in $name.csr -CA ca/ca.pem -CAkey ca.key -CAcreateserial -days 2 -out $name.pem \
        -extfile extensions
    chmod 600 $name.key
done
printf '/O=Test/CN=voms\n/O=Test/CN=CA\n' | tee vomsdir/cms/localhost.lsc > vomsdir/atlas/localhost.lsc
export X509_VOMS_DIR=$PWD/vomsdir
for pair in alice:cms bob:atlas carol:cms; do
    name=${pair%:*} group=${pair#*:}
    voms-proxy-fake -quiet -cert $name.pem -key $name.key -certdir $PWD/ca -out $name.proxy -rfc -voms $group \
        -fqan /$group/Role=NULL/Capability=NULL -hostcert voms.pem -hostkey voms.key -uri localhost:15000 -newformat
done
echo '"/O=Test/CN=alice" alice' > grid-mapfile
"#;

/// The keys of issuers of tokens, into the cache that libscitokens keeps of what it has fetched: there is no server here
/// to fetch them from.
const KEYS: &str = r#"
import base64, json, os, sqlite3, subprocess, sys, time
os.makedirs("cache/scitokens")
spoken = subprocess.run("openssl ec -in token.key -pubout -outform DER".split(), capture_output=True, check=True)
number = lambda at: base64.urlsafe_b64encode(at).rstrip(b"=").decode()
x, y = (number(spoken.stdout[-64:-32]), number(spoken.stdout[-32:]))
key = {"kid": "one", "kty": "EC", "alg": "ES256", "use": "sig", "crv": "P-256", "x": x, "y": y}
later = int(time.time()) + 86400
held = json.dumps({"jwks": {"keys": [key]}, "expires": later, "next_update": later})
with sqlite3.connect("cache/scitokens/scitokens_cpp.sqllite") as db:
    db.execute("CREATE TABLE keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, keys text NOT NULL)")
    for issuer in sys.argv[1:]:
        db.execute("INSERT INTO keycache VALUES (?, ?)", (issuer, held))
"#;

/// Runs a script in the site's directory.
fn make(site: &Site, shell: &str, script: &str, words: &[&str]) {
    let at = site.file("script", script.as_bytes());
    let here = site.path("");
    let run = [&["-C", here.to_str().unwrap(), shell, &at], words].concat();
    drop(tool("env", &run, &[("HOME", here.to_str().unwrap())]).expect_ok());
}

/// Two organizations, each with a file system and a quota; what is in each is for its group alone.
fn organizations(site: &Site) -> rt::sync::Arc<Client> {
    let client = site.client("tank");
    for (name, uid, gid) in [("cms", 1003, 2001), ("atlas", 1002, 2002)] {
        drop(site.run(&["zfs", "create", &format!("tank/{name}")]));
        drop(site.run(&["zfs", "set", "refquota=20M", &format!("tank/{name}")]));
        let own = client::Subject { uid, gid, groups: Vec::new() };
        let top = format!("/{name}");
        client.chmod(&ROOT, top.as_bytes(), 0o1777).unwrap();
        client.mkdir(&own, format!("{top}/own").as_bytes(), 0o770, false).unwrap();
    }
    client
}

fn owner(client: &Client, path: &str) -> Option<(u32, u32)> {
    client.stat(&ROOT, path.as_bytes(), true).ok().map(|stat| (stat.uid, stat.gid))
}

#[test]
fn certificates_and_organizations_are_known() {
    let site = Site::new();
    make(&site, "sh", CERTIFICATES, &[]);
    for file in ["localhost.pem", "localhost.key"] {
        hand_over(&site.path(file));
    }
    let client = organizations(&site);
    let map = site.file("users", TABLE);
    let at = |name: &str| site.path(name).to_str().unwrap().to_string();
    let lines = format!(
        "{}{}xrootd.seclib libXrdSec.so\nsec.protocol gsi -certdir:{} -cert:{} -key:{} -gridmap:{} \
         -gmapopt:1 -crl:0 -vomsat:extract -vomsfun:libXrdVoms.so\nsec.protbind * only gsi\n",
        site.osslib(&format!("pool=tank map={map}")),
        site.authority(),
        at("ca"),
        at("localhost.pem"),
        at("localhost.key"),
        at("grid-mapfile"),
    );
    let gate = site.gate("gate", &lines);
    let copy = |who: &str, from: &str, to: &str| -> Ran {
        let (ca, proxy) = (at("ca"), at(&format!("{who}.proxy")));
        let mine =
            [("X509_CERT_DIR", &*ca), ("X509_USER_PROXY", &*proxy), ("XrdSecPROTOCOL", "gsi")];
        tool("xrdcp", &["--silent", "-f", from, to], &mine)
    };
    let data = site.file("data", &noise(1, 5 << 20));
    for (who, path, is) in [
        ("alice", "/cms/own/a", (1001, 2001)),
        ("carol", "/cms/own/c", (1003, 2001)),
        ("bob", "/atlas/own/b", (1002, 2002)),
    ] {
        drop(copy(who, &data, &gate.url(path)).expect_ok());
        assert_eq!(owner(&client, path), Some(is), "{who}");
    }
    let back = at("back");
    drop(copy("carol", &gate.url("/cms/own/a"), &back).expect_ok());
    assert!(fs::read(&back).unwrap() == noise(1, 5 << 20));
    // The other organization's.
    for (who, path) in [("bob", "/cms/own/a"), ("alice", "/atlas/own/b")] {
        for (from, to) in [(gate.url(path), back.clone()), (data.clone(), gate.url(path))] {
            let ran = copy(who, &from, &to);
            assert!(ran.status != 0 && ran.err.contains("[3010]"), "{ran}");
        }
    }
    let full = site.file("full", &noise(2, 30 << 20));
    let ran = copy("alice", &full, &gate.url("/cms/own/full"));
    assert!(ran.status != 0 && ran.err.contains("[3009]"), "{ran}");
    drop(copy("bob", &data, &gate.url("/atlas/own/more")).expect_ok());
    // A certificate of somebody whom the table does not know, and none.
    let words = "-quiet -cert voms.pem -key voms.key -certdir ca -out voms.proxy -rfc";
    make(&site, "sh", &format!("voms-proxy-fake {words}"), &[]);
    let ran = copy("voms", &gate.url("/cms/own/a"), &back);
    assert!(ran.status != 0 && ran.err.contains("[3010]"), "{ran}");
    assert_ne!(copy("nobody", &gate.url("/cms/own/a"), &back).status, 0);
    drop((gate, client));
    site.end();
}

#[test]
fn tokens_are_known() {
    let site = Site::new();
    make(&site, "sh", CERTIFICATES, &[]);
    for file in ["localhost.pem", "localhost.key"] {
        hand_over(&site.path(file));
    }
    let at = |name: &str| site.path(name).to_str().unwrap().to_string();
    let key = at("token.key");
    let words = ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key];
    drop(tool("openssl", &words, &[]).expect_ok());
    drop(tool("openssl", &["ec", "-in", &key, "-pubout", "-out", &at("token.pub")], &[]));
    let issuers = ["https://localhost/cms", "https://localhost/atlas"];
    let nobodys = "https://localhost/nobodys";
    make(&site, "/usr/bin/python3", KEYS, &[issuers[0], issuers[1], nobodys]);
    for path in ["cache", "cache/scitokens", "cache/scitokens/scitokens_cpp.sqllite"] {
        hand_over(&site.path(path));
    }
    let mut config = String::from("[Global]\naudience = site\n");
    for (name, issuer) in ["cms", "atlas"].into_iter().zip(issuers) {
        config += &format!(
            "\n[Issuer {name}]\nissuer = {issuer}\nbase_path = /{name}\ndefault_user = {name}\n"
        );
    }
    // Whose tokens allow all that cms's do, and name nobody.
    config += &format!("\n[Issuer nobodys]\nissuer = {nobodys}\nbase_path = /cms\n");
    let config = site.file("scitokens.cfg", config.as_bytes());
    let client = organizations(&site);
    let map = site.file("users", TABLE);
    let lines = format!(
        "{}xrd.tls {} {}\nxrd.tlsca certdir {}\nxrootd.tls capable all\n\
         http.header2cgi Authorization authz\nxrootd.seclib libXrdSec.so\nsec.protocol ztn\n\
         sec.protbind * only ztn\nofs.authorize\n\
         ofs.authlib libXrdAccSciTokens.so config={config}\n{}",
        site.osslib(&format!("pool=tank map={map}")),
        at("localhost.pem"),
        at("localhost.key"),
        at("ca"),
        site.authority().replace("ofs.authorize\n", "").replace("authlib ", "authlib ++ "),
    );
    let gate = site.gate("gate", &lines);
    let token_of = |profile: &str, issuer: &str, scope: &str| {
        let (own, scope) = (at("token.pub"), format!("scope={scope}"));
        let words = ["--cred", &own, "--key", &key, "--keyid", "one", "--issuer", issuer];
        let claims = ["--claim", "sub=somebody", "--claim", "aud=site", "--claim", &scope];
        let words = [&words[..], &claims, &["--profile", profile]].concat();
        tool("scitokens-create", &words, &[]).expect_ok().out.trim().to_string()
    };
    let token = |issuer: &str, scope: &str| token_of("scitokens2", issuer, scope);
    let all = "read:/ write:/";
    let [cms, atlas] = issuers.map(|issuer| token(issuer, all));
    let reader = token(issuers[1], "read:/");
    let data = site.file("data", &noise(3, 3_000_000));
    let ca = at("ca/ca.pem");
    let web = |token: &str, words: &[&str], path: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        let place = format!("https://localhost:{}{path}", gate.web);
        curl(&site, &[&["--cacert", &ca, "-H", &bearer], words, &[&place]].concat())
    };
    let root = |token: &str, from: &str, to: &str| {
        let ca = at("ca");
        let mine = [("X509_CERT_DIR", &*ca), ("BEARER_TOKEN", token)];
        tool("xrdcp", &["--silent", "-f", from, to], &mine)
    };
    let url = |path: &str| gate.url(path).replace("root:", "roots:");
    for (whose, name, is) in [(&cms, "cms", (1003, 2001)), (&atlas, "atlas", (1002, 2002))] {
        let (by_web, by_root) = (format!("/{name}/own/web"), format!("/{name}/own/root"));
        assert_eq!(web(whose, &["-T", &data], &by_web).0, "200");
        drop(root(whose, &data, &url(&by_root)).expect_ok());
        assert_eq!((owner(&client, &by_web), owner(&client, &by_root)), (Some(is), Some(is)));
        assert!(web(whose, &[], &by_root).1 == noise(3, 3_000_000));
    }
    // Another's, without a token, with one that says less, and with one that is spoiled.
    assert_eq!(web(&atlas, &[], "/cms/own/web").0, "403");
    assert_eq!(web(&atlas, &["-T", &data], "/cms/own/new").0, "403");
    assert_ne!(root(&atlas, &url("/cms/own/root"), &at("back")).status, 0);
    assert_eq!(web(&reader, &["-I"], "/atlas/own/web").0, "200");
    assert_eq!(web(&reader, &["-T", &data], "/atlas/own/new").0, "403");
    let mut spoiled = cms.clone();
    spoiled.replace_range(cms.len() - 6.., "AAAAAA");
    for wrong in ["", &spoiled] {
        assert_eq!(web(wrong, &[], "/cms/own/web").0, "403");
        assert_ne!(root(wrong, &url("/cms/own/root"), &at("back")).status, 0);
    }
    // Who may make files changes none that are there, his own neither.
    let maker = token_of("wlcg", issuers[0], "storage.read:/ storage.create:/");
    let other = site.file("other", b"other");
    drop(root(&maker, &data, &url("/cms/own/made")).expect_ok());
    assert_ne!(root(&maker, &other, &url("/cms/own/made")).status, 0);
    assert_eq!(web(&maker, &["-T", &other], "/cms/own/made").0, "403");
    assert!(web(&cms, &[], "/cms/own/made").1 == noise(3, 3_000_000));
    // One connection is of many: whoever comes next in it is not who came before.
    let nobodys = token(nobodys, all);
    let place = format!("https://localhost:{}/cms/own/web", gate.web);
    let asked = |token: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        ["-s", "--cacert", &ca, "-o", "/dev/null", "-w", "%{http_code} %{num_connects} ", "-H"]
            .map(String::from)
            .into_iter()
            .chain([bearer, place.clone()])
    };
    let words: Vec<_> = asked(&cms).chain(["--next".to_string()]).chain(asked(&nobodys)).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    assert_eq!(tool("curl", &words, &[]).out, "200 1 403 0 ");
    // What a token allows is not what the table does: no organization's owner may go where permissions keep him out.
    client.chmod(&ROOT, b"/cms/own", 0o700).unwrap();
    client.chmod(&ROOT, b"/cms/own/web", 0o000).unwrap();
    assert_eq!(web(&cms, &[], "/cms/own/web").0, "403");
    let full = site.file("full", &noise(4, 30 << 20));
    assert_ne!(root(&cms, &full, &url("/cms/own/full")).status, 0);
    drop(root(&atlas, &data, &url("/atlas/own/more")).expect_ok());
    drop((gate, client));
    site.end();
}
