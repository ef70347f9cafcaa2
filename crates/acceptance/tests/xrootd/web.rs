//! HTTP and WebDAV, plain and over TLS, and copies between servers.

use std::fs;
use std::path::Path;

use testkit::noise;

use crate::gate::{Site, curl, hand_over, tool};

#[test]
fn the_web_stores_and_fetches() {
    let site = Site::new();
    let gate = site.gate("gate", &site.osslib("pool=tank"));
    let bytes = noise(1, 3_000_000);
    let from = site.file("data", &bytes);
    let at = gate.http("/web/file");
    let status = |words: &[&str]| curl(&site, words).0;
    assert_eq!(status(&["-T", &from, &at]), "200");
    assert_eq!(curl(&site, &[&at]), ("200".into(), bytes.clone()));
    assert_eq!(curl(&site, &["-r", "1000-1999", &at]), ("206".into(), bytes[1000..2000].to_vec()));
    // A range without an end is empty in XRootD 5.5.3, over a directory too.
    assert_eq!(curl(&site, &["-r", "2999990-2999999", &at]).1, bytes[2_999_990..]);
    let (code, many) = curl(&site, &["-r", "0-9,100000-100009,2000000-2000009", &at]);
    let holds = |piece: &[u8]| many.windows(piece.len()).any(|window| window == piece);
    assert_eq!(code, "206");
    for start in [0, 100_000, 2_000_000] {
        assert!(holds(&bytes[start..start + 10]), "{start}");
    }
    let (code, listed) = curl(&site, &["-X", "PROPFIND", "-H", "Depth: 1", &gate.http("/web/")]);
    let listed = String::from_utf8(listed).unwrap();
    assert_eq!(code, "207");
    assert!(listed.contains("/web/file") && listed.contains("3000000"), "{listed}");
    assert_eq!(status(&["-X", "MKCOL", &gate.http("/web/dir")]), "201");
    let to = format!("Destination: {}", gate.http("/web/dir/moved"));
    assert_eq!(status(&["-X", "MOVE", "-H", &to, &at]), "201");
    assert_eq!(status(&[&at]), "404");
    let moved = gate.http("/web/dir/moved");
    let digest = ["-I", "-H", "Want-Digest: adler32", &moved];
    let (_, head) = curl(&site, &digest);
    let ours = tool("xrdadler32", &[&from], &[]).expect_ok().out;
    let expected = format!("adler32={}", ours.split_whitespace().next().unwrap());
    assert!(String::from_utf8_lossy(&head).contains(&expected), "{expected}");
    assert_eq!(status(&["-X", "DELETE", &moved]), "200");
    assert_eq!(status(&["-X", "DELETE", &gate.http("/web/dir")]), "200");
    assert_eq!(status(&["-I", &moved]), "404");
    davix_does_all(&site, &gate.http("/by-davix"), &[]);
    drop(gate);
    site.end();
}

/// Another client of the same protocol: all that it can do, below `top`.
fn davix_does_all(site: &Site, top: &str, words: &[&str]) {
    let text: String = (0..1000).map(|i| format!("{i:04}\n")).collect();
    let from = &*site.file("text", text.as_bytes());
    let davix = |program: &str, own: &[&str]| -> String {
        tool(program, &[words, own].concat(), &[]).expect_ok().out
    };
    let (file, back) = (format!("{top}/file"), site.path("davix"));
    drop(davix("davix-mkdir", &[top]));
    drop(davix("davix-put", &[from, &file]));
    let listed = davix("davix-ls", &["-l", top]);
    assert!(listed.contains("file") && listed.contains("5000"), "{listed}");
    drop(davix("davix-get", &[&file, back.to_str().unwrap()]));
    assert_eq!(fs::read_to_string(&back).unwrap(), text);
    let range = ["-H", "Range: bytes=1000-1999", &file];
    assert_eq!(davix("davix-http", &range), text[1000..2000]);
    drop(davix("davix-rm", &[&file]));
    assert!(!davix("davix-ls", &[top]).contains("file"));
    drop(davix("davix-rm", &[top]));
}

/// In the directory that it is told: an authority, and a certificate of this host.
const CERTIFICATE: &str = r#"
set -e
cd "$1"
mkdir tls ca
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=CA -keyout ca.key -out ca/ca.pem \
    -addext basicConstraints=critical,CA:TRUE
openssl rehash ca
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout tls/key.pem -out tls/csr.pem
echo subjectAltName=DNS:localhost > extensions
openssl x509 -req -in tls/csr.pem -CA ca/ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions \
    -out tls/cert.pem
"#;

/// A certificate of our own, and the directory that says who is believed; the authority's certificate.
fn certificate(site: &Site) -> (String, String) {
    let script = site.file("certificate", CERTIFICATE.as_bytes());
    drop(tool("sh", &[&script, site.path("").to_str().unwrap()], &[]).expect_ok());
    let (dir, ca) = (site.path("tls"), site.path("ca"));
    let (key, cert) = (dir.join("key.pem"), dir.join("cert.pem"));
    for path in [&dir, &key, &cert] {
        hand_over(Path::new(path));
    }
    let lines = format!(
        "xrd.tls {} {}\nxrd.tlsca certdir {}\nhttp.exthandler xrdtpc libXrdHttpTPC.so\n",
        cert.display(),
        key.display(),
        ca.display()
    );
    (lines, ca.join("ca.pem").to_str().unwrap().into())
}

/// Two servers of two trees: files go from one to the other at a client's word, in both directions.
#[test]
fn servers_copy_among_themselves_over_tls() {
    let site = Site::new();
    let (lines, cert) = certificate(&site);
    drop(site.run(&["zfs", "create", "tank/b"]));
    let one = site.gate("one", &format!("{}{lines}", site.osslib("pool=tank")));
    let two = site.gate("two", &format!("{}{lines}", site.osslib("tree=tank/b")));
    let bytes = noise(1, 9_000_000);
    let from = site.file("data", &bytes);
    let at = |web: u16, path: &str| format!("https://localhost:{web}{path}");
    let tls = |words: &[&str]| curl(&site, &[&["--cacert", &cert], words].concat());
    assert_eq!(tls(&["-T", &from, &at(one.web, "/up")]).0, "200");
    assert_eq!(tls(&[&at(one.web, "/up")]).1, bytes);
    // What is asked of it besides, over TLS too.
    assert_eq!(tls(&["-r", "5-14", &at(one.web, "/up")]), ("206".into(), bytes[5..15].to_vec()));
    assert_eq!(tls(&["-X", "MKCOL", &at(one.web, "/dir")]).0, "201");
    let (code, listed) = tls(&["-X", "PROPFIND", "-H", "Depth: 1", &at(one.web, "/")]);
    let listed = String::from_utf8(listed).unwrap();
    assert!(code == "207" && listed.contains("/up") && listed.contains("9000000"), "{listed}");
    assert_eq!(tls(&["-X", "DELETE", &at(one.web, "/dir")]).0, "200");
    let ca = site.path("ca");
    let believed = ["--capath", ca.to_str().unwrap()];
    davix_does_all(&site, &at(one.web, "/by-davix"), &believed);
    let source = format!("Source: {}", at(one.web, "/up"));
    let (code, said) = tls(&["-X", "COPY", "-H", &source, &at(two.web, "/pulled")]);
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(code == "201" && said.contains("success"), "{code}: {said}");
    assert!(tls(&[&at(two.web, "/pulled")]).1 == bytes);
    let to = format!("Destination: {}", at(two.web, "/pushed"));
    let (code, said) = tls(&["-X", "COPY", "-H", &to, &at(one.web, "/up")]);
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(code == "201" && said.contains("success"), "{code}: {said}");
    let client = site.client("tank");
    let stat = client.stat(&crate::gate::ROOT, b"/b/pushed", true).unwrap();
    assert_eq!(stat.size, bytes.len() as u64);
    assert!(tls(&[&at(two.web, "/pushed")]).1 == bytes);
    drop((one, two, client));
    site.end();
}
