//! Names that Windows takes for something else than a file of that name.

/// The devices that have a name in every folder. The digits of `COM` and `LPT` are apart.
const DEVICES: [&str; 7] = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"];

/// What Windows takes the path `location` for, if a part of it does not name a file or a folder of
/// that name there.
pub(super) fn meaning(location: &str) -> Option<&'static str> {
    location.split(['/', '\\']).filter(|part| !["", ".", ".."].contains(part)).find_map(of_part)
}

fn of_part(part: &str) -> Option<&'static str> {
    if part.contains(':') {
        Some("a stream of a file")
    } else if part.ends_with(['.', ' ']) {
        Some("the name without the dots and blanks at its end")
    } else if is_device(part) {
        Some("a device")
    } else if part.contains(['<', '>', '"', '|', '?', '*']) || part.contains(|c| c < ' ') {
        Some("no name at all")
    } else {
        None
    }
}

/// Whether a name, or what it has before its first dot, is that of a device.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end_matches(' ');
    if DEVICES.iter().any(|device| device.eq_ignore_ascii_case(stem)) {
        return true;
    }
    let numbered = |kind: &str| {
        let start = stem.get(..kind.len()).filter(|start| start.eq_ignore_ascii_case(kind))?;
        stem.strip_prefix(start)
    };
    let number = numbered("COM").or_else(|| numbered("LPT"));
    number.is_some_and(|number| {
        let mut digits = number.chars();
        let is_digit = |c: char| c.is_ascii_digit() || "\u{b9}\u{b2}\u{b3}".contains(c);
        digits.next().is_some_and(is_digit) && digits.next().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_windows_takes_for_something_else() {
        let (stream, shorter, device, none) = (
            Some("a stream of a file"),
            Some("the name without the dots and blanks at its end"),
            Some("a device"),
            Some("no name at all"),
        );
        for (location, expected) in [
            ("w.bin", None),
            ("./sub/w.bin", None),
            ("sub//w..bin", None),
            ("..w", None),
            ("../w", None),
            ("NUL", device),
            ("nul.bin", device),
            ("con.onnx", device),
            ("Aux .data", device),
            ("sub/prn", device),
            ("sub\\com1.weight", device),
            ("com1/w", device),
            ("LPT\u{b2}", device),
            ("conin$", device),
            ("COM", None),
            ("COM10", None),
            ("comx", None),
            ("console", None),
            ("m-con.weight", None),
            ("a:b", stream),
            ("w.bin::$DATA", stream),
            ("sub:x/w", stream),
            ("w.", shorter),
            ("w ", shorter),
            ("sub./w", shorter),
            ("...", shorter),
            ("w?", none),
            ("a*b", none),
            ("a|b", none),
            ("a\u{1}", none),
            ("\u{e4}", None),
        ] {
            assert_eq!(meaning(location), expected, "{location:?}");
        }
    }
}
