//! Who is calling, as a verified token says.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::CapabilitySet;

/// A caller whose token was verified. Made by `auth` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The mapped subject claim; never empty.
    pub subject: String,
    pub issuer: String,
    /// Empty where neither the token nor the issuer's defaults give one: no limits apply to
    /// such a tier's name, so `budget` refuses it.
    pub tier: String,
    pub capabilities: CapabilitySet,
    pub agent: Option<String>,
    pub trust: TrustLevel,
    /// `auth.issuers.claims.extra`: name → value, for audit and policy.
    pub extra: BTreeMap<String, String>,
}

/// How far a caller is trusted with tools: L0 (least) to L3.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrustLevel {
    #[default]
    L0,
    L1,
    L2,
    L3,
}

impl TrustLevel {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::L0 => "L0",
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }
}

impl fmt::Display for TrustLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not `L0` to `L3`, nor 0 to 3.
#[derive(Debug, thiserror::Error)]
#[error("a trust level is L0, L1, L2 or L3")]
pub struct InvalidTrustLevel;

impl FromStr for TrustLevel {
    type Err = InvalidTrustLevel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix(['L', 'l']).unwrap_or(text) {
            "0" => Ok(Self::L0),
            "1" => Ok(Self::L1),
            "2" => Ok(Self::L2),
            "3" => Ok(Self::L3),
            _ => Err(InvalidTrustLevel),
        }
    }
}
