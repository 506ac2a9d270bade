//! What `aws configure` wrote: the credentials and the region of a profile.
//!
//! object_store reads the environment only. The files and their precedence are those of the AWS
//! tools: `AWS_PROFILE` names the profile, `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` the
//! files, and variables of the environment come before them.

use std::path::PathBuf;

use configparser::ini::Ini;
use object_store::aws::AmazonS3ConfigKey as Key;

/// The names in the files, and object_store's.
const CREDENTIALS: [(&str, Key); 3] = [
    ("aws_access_key_id", Key::AccessKeyId),
    ("aws_secret_access_key", Key::SecretAccessKey),
    ("aws_session_token", Key::Token),
];
const PLACE: [(&str, Key); 2] = [("region", Key::Region), ("endpoint_url", Key::Endpoint)];

/// One profile of the files.
#[derive(Default)]
pub(crate) struct Profile {
    /// Its name, where the environment has one.
    pub(crate) named: Option<String>,
    /// Access key, secret and token, where both of the first are there.
    pub(crate) credentials: Vec<(Key, String)>,
    /// Region and endpoint.
    pub(crate) place: Vec<(Key, String)>,
}

impl Profile {
    /// The profile that the environment names. Empty where there are no files: what cannot be read
    /// is no profile.
    pub(crate) fn of_environment() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let named = variable("AWS_PROFILE").or_else(|| variable("AWS_DEFAULT_PROFILE"));
        let name = named.clone().unwrap_or_else(|| "default".to_owned());
        let home = || variable("HOME").or_else(|| variable("USERPROFILE")).map(PathBuf::from);
        let file = |name, default: &str| {
            let path = variable(name).map(PathBuf::from);
            let path = path.or_else(|| Some(home()?.join(".aws").join(default)))?;
            read(&std::fs::read_to_string(path).ok()?)
        };
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
        let config = file("AWS_CONFIG_FILE", "config");
        let found = Self::of_files(credentials.as_ref(), config.as_ref(), &name);
        Self { named, ..found }
    }

    /// The profile `name`, which the first file comes before the second for.
    fn of_files(credentials: Option<&Ini>, config: Option<&Ini>, name: &str) -> Self {
        // The file of settings calls all but the default one so.
        let title = if name == "default" { name.to_owned() } else { format!("profile {name}") };
        let first = credentials.map(|file| (file, name.to_owned()));
        let second = config.map(|file| (file, title));
        let files: Vec<(&Ini, String)> = first.into_iter().chain(second).collect();
        // A key is of no use without its secret.
        let is_complete = |values: &Vec<(Key, String)>| {
            let has = |wanted| values.iter().any(|(key, _)| *key == wanted);
            has(Key::AccessKeyId) && has(Key::SecretAccessKey)
        };
        let keys = files.iter().map(|(file, section)| values(file, section, &CREDENTIALS));
        let credentials = keys.into_iter().find(is_complete).unwrap_or_default();
        let places = files.iter().rev().flat_map(|(file, section)| values(file, section, &PLACE));
        Self { named: None, credentials, place: places.collect() }
    }
}

/// A file of profiles. Values are taken as they stand: a secret may have any character.
fn read(text: &str) -> Option<Ini> {
    let mut file = Ini::new_cs();
    file.set_inline_comment_symbols(Some(&[]));
    file.read(text.to_owned()).ok()?;
    Some(file)
}

fn values(file: &Ini, section: &str, names: &[(&str, Key)]) -> Vec<(Key, String)> {
    let value = |(name, key): &(&str, Key)| {
        let value = file.get(section, name).filter(|value| !value.is_empty())?;
        Some((*key, value))
    };
    names.iter().filter_map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_as_the_aws_tools_read_it() {
        let credentials = "[default]\naws_access_key_id = A\naws_secret_access_key = a/+=%#:;\n\n\
                           [work]\naws_access_key_id=W\naws_secret_access_key=w\n\
                           aws_session_token=t\n[half]\naws_access_key_id=H\n";
        let config = "[default]\nregion = eu-west-1\n[profile work]\nregion=us-west-2\n\
                      endpoint_url = http://localhost:1\n[profile half]\naws_access_key_id=C\n\
                      aws_secret_access_key=c\n";
        let (credentials, config) = (read(credentials).unwrap(), read(config).unwrap());
        // The profile, its credentials, and its place.
        let cases = [
            ("default", vec!["A", "a/+=%#:;"], vec!["eu-west-1"]),
            ("work", vec!["W", "w", "t"], vec!["us-west-2", "http://localhost:1"]),
            ("half", vec!["C", "c"], vec![]),
            ("none", vec![], vec![]),
        ];
        for (name, keys, place) in cases {
            let profile = Profile::of_files(Some(&credentials), Some(&config), name);
            let texts = |found: &[(Key, String)]| {
                found.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>()
            };
            assert_eq!(texts(&profile.credentials), keys, "{name}");
            assert_eq!(texts(&profile.place), place, "{name}");
        }
        assert!(Profile::of_files(None, None, "default").credentials.is_empty());
    }
}
