//! Where the server is found.

use std::ffi::OsString;
use std::path::PathBuf;

use verbs::state;

/// The environment variable that names the server's socket.
pub const VARIABLE: &str = "THUMPER_SOCKET";

/// The path of the server's socket: `THUMPER_SOCKET`; else, with a list of pools of its own (`THUMPER_STATE`),
/// beside that list; else in `/run/thumper` for root, and in the user's runtime directory for others.
/// `variable` reads the environment.
#[must_use]
pub fn socket_path(variable: impl Fn(&str) -> Option<OsString>, is_root: bool) -> PathBuf {
    let given = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = given(VARIABLE) {
        return path;
    }
    if let Some(list) = given(state::VARIABLE) {
        let name = list.file_name().unwrap_or_default().to_string_lossy().into_owned();
        return list.with_file_name(name + ".socket");
    }
    match given("XDG_RUNTIME_DIR").filter(|dir| !is_root && dir.is_absolute()) {
        Some(dir) => dir.join("thumper/socket"),
        None => PathBuf::from("/run/thumper/socket"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_where_the_environment_says() {
        let at = |list: &[(&str, &str)], is_root| {
            let find = |name: &str| {
                let known = list.iter().find(|(known, _)| *known == name);
                known.map(|(_, value)| OsString::from(value))
            };
            socket_path(find, is_root).display().to_string()
        };
        assert_eq!(at(&[("THUMPER_SOCKET", "/x/s"), ("THUMPER_STATE", "/y/z")], true), "/x/s");
        assert_eq!(at(&[("THUMPER_SOCKET", ""), ("THUMPER_STATE", "/y/z")], true), "/y/z.socket");
        assert_eq!(at(&[("XDG_RUNTIME_DIR", "/run/user/7")], true), "/run/thumper/socket");
        assert_eq!(at(&[("XDG_RUNTIME_DIR", "/run/user/7")], false), "/run/user/7/thumper/socket");
        assert_eq!(at(&[("XDG_RUNTIME_DIR", "odd")], false), "/run/thumper/socket");
    }
}
