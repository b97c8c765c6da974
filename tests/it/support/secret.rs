//! Made-up secrets of real formats.

/// Stands in the sources where a secret would be taken for a real one by those who host them.
const BREAK: char = '\u{205E}';

/// `AKIA⁞QWERTY…` without what breaks it.
pub fn whole(broken: &str) -> String {
    broken.replace(BREAK, "")
}

pub fn aws_key() -> String {
    whole("AKIA⁞QWERTYUIOPASDFGH")
}

pub fn github_token() -> String {
    whole("ghp_⁞0123456789abcdefghijABCDEFGHIJ012345")
}
