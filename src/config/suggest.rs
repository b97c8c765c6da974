//! "Did you mean …?"

/// What to do about `unknown`: the nearest of `known` if one is near, else all of them.
pub(super) fn remedy(unknown: &str, known: &[&str]) -> String {
    did_you_mean(unknown, known).unwrap_or_else(|| format!("known are {}", list(known)))
}

/// `did you mean "…"?`, if one of `known` is near.
#[must_use]
pub fn did_you_mean(unknown: &str, known: &[&str]) -> Option<String> {
    nearest(unknown, known).map(|near| format!("did you mean \"{near}\"?"))
}

/// `"a", "b", "c"`.
pub(super) fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    // A key as long as a file is a stranger's joke, and the distance takes quadratic time.
    if unknown.len() > 128 {
        return None;
    }
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let unknown = plain(unknown);
    let by_distance = |name: &&'a str| (strsim::damerau_levenshtein(&unknown, &plain(name)), *name);
    let (distance, near) = known.iter().map(by_distance).min()?;
    (distance <= (near.len() / 3).max(1)).then_some(near)
}
