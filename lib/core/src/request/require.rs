// SPDX-License-Identifier: MIT OR Apache-2.0
//! `NVIDIA_REQUIRE_*`: what an image needs of driver and GPU (libnvidia-container, src/cli/dsl.c). A blank is "or", a
//! comma "and" and binds closer: `cuda>=12.4 brand=tesla,driver>=470,driver<471`.
//!
//! NVIDIA's toolkit asks NVML for CUDA version, architecture and brand. We know the driver's version and the GPU's model,
//! and those decide some constraints and not others; what is not decided is no reason to refuse a container.

use std::collections::BTreeMap;

use super::RequestError;
use super::select::VALUE_MAX;
use crate::facts::{Version, VersionRange};

const PREFIX: &str = "NVIDIA_REQUIRE_";
const CUDA: &str = "NVIDIA_REQUIRE_CUDA";
const DISABLE: &str = "NVIDIA_DISABLE_REQUIRE";
const CUDA_VERSION: &str = "CUDA_VERSION";

/// One variable `NVIDIA_REQUIRE_*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The variable's name; that of `CUDA_VERSION` where its image has no requirement.
    pub name: String,
    /// What it says.
    pub text: String,
    /// One of these has to hold, with all of its constraints; none at all always holds.
    alternatives: Vec<Vec<Constraint>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Constraint {
    Version {
        property: Property,
        operator: Operator,
        version: Version,
    },
    /// `brand`, and whatever a later toolkit knows: nothing in the driver's files tells.
    Untold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Property {
    Cuda,
    Driver,
    Arch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// What a host has, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// The driver's CUDA version.
    pub cuda: VersionRange,
    /// The driver's version.
    pub driver: VersionRange,
    /// The GPU's compute capability; `None` without a GPU, and then every constraint on it holds.
    pub arch: Option<VersionRange>,
}

/// Whether a requirement holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judgement {
    /// It does not, whatever the rest is.
    Unmet,
    /// What is known of the host does not decide it.
    Undecided,
    /// It does.
    Met,
}

impl Requirement {
    fn parse(name: &str, text: &str) -> Result<Self, RequestError> {
        if text.len() > VALUE_MAX {
            return Err(RequestError::TooLong { name: name.to_owned(), bytes: text.len() });
        }
        let constraint = |word: &str| {
            Constraint::parse(word)
                .ok_or_else(|| RequestError::BadConstraint { name: name.to_owned(), word: word.to_owned() })
        };
        let all = |alternative: &str| alternative.split(',').filter(|word| !word.is_empty()).map(constraint).collect();
        let alternatives = text.split_ascii_whitespace().map(all).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { name: name.to_owned(), text: text.to_owned(), alternatives })
    }

    /// Whether a host that has `offer` fulfils it.
    pub fn judge(&self, offer: &Offer) -> Judgement {
        let all = |alternative: &Vec<Constraint>| {
            alternative.iter().map(|constraint| constraint.judge(offer)).min().unwrap_or(Judgement::Met)
        };
        self.alternatives.iter().map(all).max().unwrap_or(Judgement::Met)
    }
}

impl Constraint {
    fn parse(word: &str) -> Option<Self> {
        let is_operator = |c: char| matches!(c, '<' | '>' | '=' | '!');
        let (property, rest) = word.split_at(word.find(is_operator)?);
        let (operator, value) = rest.split_at(rest.find(|c| !is_operator(c))?);
        let operator = match operator {
            "=" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            _ => return None,
        };
        let property = match property.to_ascii_lowercase().as_str() {
            "cuda" => Property::Cuda,
            "driver" => Property::Driver,
            "arch" => Property::Arch,
            "brand" => return matches!(operator, Operator::Equal | Operator::NotEqual).then_some(Self::Untold),
            "" => return None,
            _ => return Some(Self::Untold),
        };
        Some(Self::Version { property, operator, version: Version::parse(value)? })
    }

    fn judge(&self, offer: &Offer) -> Judgement {
        let Self::Version { property, operator, version } = self else {
            return if offer.arch.is_none() { Judgement::Met } else { Judgement::Undecided };
        };
        let range = match property {
            Property::Cuda => &offer.cuda,
            Property::Driver => &offer.driver,
            Property::Arch => match &offer.arch {
                Some(range) => range,
                None => return Judgement::Met,
            },
        };
        operator.judge(range, version)
    }
}

impl Operator {
    fn judge(self, range: &VersionRange, version: &Version) -> Judgement {
        let least = |holds: fn(&Version, &Version) -> bool| range.least.as_ref().is_some_and(|it| holds(it, version));
        let most = |holds: fn(&Version, &Version) -> bool| range.most.as_ref().is_some_and(|it| holds(it, version));
        let is_equal = range.least.is_some() && range.least == range.most && least(Version::eq);
        let is_other = least(Version::gt) || most(Version::lt);
        let (holds, fails) = match self {
            Self::Equal => (is_equal, is_other),
            Self::NotEqual => (is_other, is_equal),
            Self::Less => (most(Version::lt), least(Version::ge)),
            Self::LessOrEqual => (most(Version::le), least(Version::gt)),
            Self::Greater => (least(Version::gt), most(Version::le)),
            Self::GreaterOrEqual => (least(Version::ge), most(Version::lt)),
        };
        match (holds, fails) {
            (true, _) => Judgement::Met,
            (_, true) => Judgement::Unmet,
            _ => Judgement::Undecided,
        }
    }
}

/// What the variables of a container say of its image.
#[derive(Debug, Default)]
pub(super) struct ImageNeeds<'a> {
    requires: BTreeMap<&'a str, &'a str>,
    cuda_version: &'a str,
    is_disabled: bool,
}

impl<'a> ImageNeeds<'a> {
    /// The last of several variables of one name counts.
    pub(super) fn of(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut needs = Self::default();
        for (name, value) in variables {
            match name {
                CUDA_VERSION => needs.cuda_version = value,
                // Go's strconv.ParseBool, with which the toolkit reads it.
                DISABLE => needs.is_disabled = matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True"),
                _ if name.starts_with(PREFIX) && !name.starts_with("NVIDIA_REQUIRE_JETPACK") => {
                    needs.requires.insert(name, value);
                }
                _ => {}
            }
        }
        needs
    }

    /// Whether it is an image from before `NVIDIA_REQUIRE_CUDA`, whose wishes are understood without being said.
    pub(super) fn is_legacy(&self) -> bool {
        !self.cuda_version.is_empty() && self.requires.get(CUDA).is_none_or(|text| text.is_empty())
    }

    /// What the image requires.
    pub(super) fn requirements(&self) -> Result<Vec<Requirement>, RequestError> {
        if self.is_disabled {
            return Ok(Vec::new());
        }
        let said = self.requires.iter().map(|(name, text)| Requirement::parse(name, text));
        let mut requirements = said.collect::<Result<Vec<_>, _>>()?;
        if self.is_legacy() {
            let mut numbers = self.cuda_version.split('.');
            let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or("0"));
            requirements.push(Requirement::parse(CUDA_VERSION, &format!("cuda>={major}.{minor}"))?);
        }
        Ok(requirements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Judgement::{Met, Undecided, Unmet};

    fn range(least: &str, most: &str) -> VersionRange {
        VersionRange { least: Version::parse(least), most: Version::parse(most) }
    }

    fn offer() -> Offer {
        Offer {
            cuda: range("12.2", "12.2"),
            driver: range("535.129.03", "535.129.03"),
            arch: Some(range("8.0", "8.0")),
        }
    }

    fn judge(text: &str, offer: &Offer) -> Judgement {
        Requirement::parse(CUDA, text).expect(text).judge(offer)
    }

    #[test]
    fn a_blank_is_or_and_a_comma_is_and() {
        for (text, judgement) in [
            ("", Met),
            (" , ,", Met),
            ("cuda>=12.2", Met),
            ("cuda>=12", Met),
            ("cuda>=12.4", Unmet),
            ("CUDA>=12.2", Met),
            ("cuda=12.2,driver>=535", Met),
            ("cuda>=12.4,driver>=535", Unmet),
            ("cuda>=12.4 driver>=535", Met),
            ("cuda>=12.4,driver>=1 driver<535,cuda>1", Unmet),
            ("driver=535.129.3", Met),
            ("driver!=535.129.03", Unmet),
            ("driver<=535.129.03,driver<536,driver>535", Met),
            ("driver>535.129.03", Unmet),
            ("arch>=7.5", Met),
            ("arch<8", Unmet),
        ] {
            assert_eq!(judge(text, &offer()), judgement, "{text}");
        }
    }

    #[test]
    fn what_nobody_knows_decides_only_where_it_does_not_matter() {
        for (text, judgement) in [
            ("brand=tesla", Undecided),
            ("brand!=tesla", Undecided),
            ("memory>=40", Undecided),
            ("cuda>=12.2 brand=tesla", Met),
            ("brand=tesla cuda>=12.2", Met),
            ("cuda>=12.4 brand=tesla,driver>=470,driver<471", Unmet),
            ("cuda>=12.4 brand=tesla,driver>=535,driver<536", Undecided),
        ] {
            assert_eq!(judge(text, &offer()), judgement, "{text}");
        }
        assert_eq!(judge("brand=tesla,arch>=99", &Offer { arch: None, ..offer() }), Met);
    }

    #[test]
    fn a_driver_newer_than_all_that_is_known_has_at_least_the_newest_cuda() {
        let newer = Offer { cuda: range("13.2", ""), driver: range("610.43.03", "610.43.03"), arch: None };
        for (text, judgement) in [
            ("cuda>=12.4", Met),
            ("cuda>=13.2", Met),
            ("cuda>13.1", Met),
            ("cuda!=13.1", Met),
            ("cuda>=13.3", Undecided),
            ("cuda=13.2", Undecided),
            ("cuda!=13.2", Undecided),
            ("cuda<13.3", Undecided),
            ("cuda<13", Unmet),
            ("cuda<=13.1", Unmet),
            ("cuda=12.4", Unmet),
        ] {
            assert_eq!(judge(text, &newer), judgement, "{text}");
        }
        let unknown = Offer { cuda: VersionRange::default(), ..newer };
        for text in ["cuda>=1", "cuda<1", "cuda=1", "cuda!=1"] {
            assert_eq!(judge(text, &unknown), Undecided, "{text}");
        }
    }

    #[test]
    fn a_constraint_that_says_nothing_is_refused_by_name() {
        for word in [
            "cuda",
            "cuda>=",
            ">=12",
            "cuda>=x",
            "cuda=>12",
            "cuda==12",
            "cuda!12",
            "brand>tesla",
            "=",
            "cuda>=12.\u{7f}",
        ] {
            let error = Requirement::parse(CUDA, &format!("driver>1 driver<2,{word}")).expect_err(word);
            assert_eq!(error, RequestError::BadConstraint { name: CUDA.to_owned(), word: word.to_owned() });
            assert!(!error.to_string().contains('\u{7f}'), "{error}");
        }
    }

    fn needs(variables: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let requirements = ImageNeeds::of(variables.iter().copied()).requirements().expect("requirements");
        requirements.into_iter().map(|requirement| (requirement.name, requirement.text)).collect()
    }

    #[test]
    fn every_variable_counts_but_jetpacks_until_requirements_are_disabled() {
        let variables = [(CUDA, "cuda>=9"), ("NVIDIA_REQUIRE_JETPACK", "csv-mounts=all"), ("NVIDIA_REQUIRE_X", "x=1")];
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(needs(&variables), [pair(CUDA, "cuda>=9"), pair("NVIDIA_REQUIRE_X", "x=1")]);
        for (value, is_disabled) in
            [("1", true), ("true", true), ("T", true), ("0", false), ("yes", false), ("", false)]
        {
            let all = [&variables[..], &[(DISABLE, value)]].concat();
            assert_eq!(needs(&all).is_empty(), is_disabled, "{value}");
        }
    }

    #[test]
    fn an_image_with_a_cuda_version_alone_is_legacy_and_requires_it() {
        for (variables, requires) in [
            (&[(CUDA_VERSION, "10.2.89")][..], Some("cuda>=10.2")),
            (&[(CUDA_VERSION, "12")], Some("cuda>=12.0")),
            (&[(CUDA_VERSION, "12.4.1"), (CUDA, "")], Some("cuda>=12.4")),
            (&[(CUDA_VERSION, "")], None),
            (&[], None),
        ] {
            assert_eq!(ImageNeeds::of(variables.iter().copied()).is_legacy(), requires.is_some(), "{variables:?}");
            let said: Vec<String> =
                needs(variables).into_iter().map(|(_, text)| text).filter(|t| !t.is_empty()).collect();
            assert_eq!(said, requires.into_iter().collect::<Vec<_>>(), "{variables:?}");
        }
        assert!(!ImageNeeds::of([(CUDA_VERSION, "12.4.1"), (CUDA, "cuda>=12.4")]).is_legacy());
        let bad = ImageNeeds::of([(CUDA_VERSION, "twelve")]).requirements();
        let word = "cuda>=twelve.0".to_owned();
        assert_eq!(bad, Err(RequestError::BadConstraint { name: CUDA_VERSION.to_owned(), word }));
    }
}
