//! What a store says, as an [`Error`]: with the object, and without secrets.

use std::error::Error as _;

use object_store::Error as StoreError;
use onnx_container::{Error, ErrorKind};

use crate::url::without_secrets;

/// The error of a request for the object that is called `shown`.
pub(crate) fn from_store(shown: &str, error: StoreError) -> Error {
    // A store of ours says it as the user is to read it.
    if let Some(said) = error.source().and_then(|cause| cause.downcast_ref::<Error>()) {
        return Error::new(said.kind(), said.reason()).with_path(shown);
    }
    let (kind, reason) = match &error {
        StoreError::NotFound { .. } => (ErrorKind::MissingFile, "there is no such object".into()),
        StoreError::AlreadyExists { .. } => {
            (ErrorKind::AlreadyExists, "there is such an object already".into())
        }
        StoreError::Precondition { .. } => {
            (ErrorKind::Changed, "the object is not the one that was seen before".into())
        }
        _ if is_refused(&error) && is_unknown(&error) => {
            let why = why(&error);
            (
                ErrorKind::Io,
                format!("the store does not accept who asks, see the credentials: {why}"),
            )
        }
        _ if is_refused(&error) => {
            (ErrorKind::Io, format!("the store does not allow it: {}", why(&error)))
        }
        _ if is_unauthenticated(&error) => {
            let said = "the store does not accept who asks: give it credentials by the environment";
            let why = matches!(error, StoreError::Generic { .. }).then(|| whole(&error));
            (ErrorKind::Io, why.map_or_else(|| said.to_owned(), |why| format!("{said}: {why}")))
        }
        StoreError::NotSupported { .. } | StoreError::NotImplemented { .. } => {
            (ErrorKind::Unsupported, format!("the store cannot do this: {}", whole(&error)))
        }
        StoreError::InvalidPath { .. } | StoreError::UnknownConfigurationKey { .. } => {
            (ErrorKind::InvalidArgument, whole(&error))
        }
        _ => (ErrorKind::Io, without_credentials(shown, whole(&error))),
    };
    Error::new(kind, reason).with_path(shown)
}

/// Where machines and containers in a cloud ask for their credentials.
const OF_MACHINES: [&str; 3] = ["169.254.169.254", "169.254.170.", "metadata.google.internal"];

/// Says first what an error means that comes from asking a machine in a cloud for its credentials.
fn without_credentials(shown: &str, said: String) -> String {
    if !OF_MACHINES.iter().any(|host| said.contains(host)) {
        return said;
    }
    let cloud = match shown.split_once("://") {
        Some(("gs", _)) => "GOOGLE",
        Some(("az" | "azure" | "abfs" | "abfss", _)) => "AZURE",
        _ => "AWS",
    };
    format!(
        "there are no credentials for the store: give them by the environment (docs/stores.md has \
         the names), or say that requests are not signed (`{cloud}_SKIP_SIGNATURE=true` for a \
         public bucket): {said}"
    )
}

/// Whether a store does not allow a request. object_store has a kind of error for it where an
/// object is asked for, and none for a listing and for the end of an upload to Google.
fn is_refused(error: &StoreError) -> bool {
    matches!(error, StoreError::PermissionDenied { .. }) || has_status(error, 403)
}

fn is_unauthenticated(error: &StoreError) -> bool {
    matches!(error, StoreError::Unauthenticated { .. }) || has_status(error, 401)
}

fn has_status(error: &StoreError, status: u16) -> bool {
    let status = format!("status code: {status} ");
    let said = whole(error);
    let is_of_store = matches!(error, StoreError::Generic { .. }) && !is_of_credentials(&said);
    is_of_store && said.contains(&status)
}

/// Whether a request for credentials has failed, which is sent to another server than the store.
fn is_of_credentials(said: &str) -> bool {
    // object_store names no address of a request that has secrets in it, as one to Amazon's STS.
    const REQUESTS: [&str; 2] = ["performing token request", "performing POST REDACTED"];
    OF_MACHINES.iter().chain(&REQUESTS).any(|it| said.contains(it))
}

/// Why a store refuses a request. An error without a kind may be of any request, so it is told
/// with the address.
fn why(error: &StoreError) -> String {
    match error {
        StoreError::Generic { .. } => whole(error),
        _ => innermost(error),
    }
}

/// Whether a store refuses the credentials, and not only what they ask for.
fn is_unknown(error: &StoreError) -> bool {
    const CODES: [&str; 4] =
        ["SignatureDoesNotMatch", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken"];
    let said = whole(error);
    CODES.iter().any(|code| said.contains(code))
}

/// What an error says and what it is caused by, as one clause.
fn whole(error: &StoreError) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !said.contains(&next) {
            said = format!("{said}: {next}");
        }
        cause = error.source();
    }
    one_clause(&said)
}

/// The cause of all others.
fn innermost(error: &StoreError) -> String {
    let mut last = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        last = error.to_string();
        cause = error.source();
    }
    one_clause(&last)
}

/// `text` with the code and the message of the page that a server sent in place of the page: it may
/// repeat the token and the signature of the request.
fn without_page(text: &str) -> String {
    let Some(start) = text.find('<') else { return text.to_owned() };
    let (said, page) = text.split_at(start);
    let of = |name: &str| {
        let (_, rest) = page.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(value, _)| value)
    };
    let told: Vec<&str> = ["Code", "Message"].into_iter().filter_map(of).collect();
    match told.is_empty() {
        true => said.trim_end_matches([' ', ':']).to_owned(),
        false => format!("{said}{}", told.join(": ")),
    }
}

/// One line without secrets, of bounded length: an answer of a server may be a page.
fn one_clause(text: &str) -> String {
    const MOST: usize = 600;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = without_secrets(&without_page(&line));
    match shown.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", shown.get(..end).unwrap_or_default()),
        None => shown.trim_end_matches('.').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_credentials_the_variable_is_that_of_the_cloud() {
        for (root, said) in [
            ("s3://b", "`AWS_SKIP_SIGNATURE=true`"),
            ("gs://b", "`GOOGLE_SKIP_SIGNATURE=true`"),
            ("az://b", "`AZURE_SKIP_SIGNATURE=true`"),
            ("abfss://b@a.dfs.core.windows.net", "`AZURE_SKIP_SIGNATURE=true`"),
        ] {
            let source = "GET http://169.254.169.254/token".into();
            let error = StoreError::Generic { store: "any", source };
            let error = from_store(&format!("{root}/k"), error).to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn errors_name_the_object_and_no_secret() {
        let source = || "GET https://h/b/k?sig=secret\n  failed.".into();
        let path = || "k".to_owned();
        let listing = |said: &str| format!("GET https://h/b - status code: {said} ").into();
        let ours = || Error::new(ErrorKind::NoSpace, "what is said").into();
        // As object_store says what a server has answered.
        let asking = |store, request: &str, status: &str| StoreError::Generic {
            store,
            source: format!("Error performing {request} in 1ms - status code: {status}").into(),
        };
        // The error, its kind, and what is said.
        let cases = [
            (
                StoreError::NotFound { path: path(), source: source() },
                ErrorKind::MissingFile,
                "`s3://b/k`: there is no such object",
            ),
            (
                StoreError::Precondition { path: path(), source: source() },
                ErrorKind::Changed,
                "`s3://b/k`: the object is not the one",
            ),
            (
                StoreError::Generic { store: "S3", source: source() },
                ErrorKind::Io,
                "`s3://b/k`: Generic S3 error: GET https://h/b/k failed",
            ),
            (
                StoreError::PermissionDenied { path: path(), source: source() },
                ErrorKind::Io,
                "does not allow it: GET https://h/b/k failed",
            ),
            (
                StoreError::Generic { store: "S3", source: "PUT http://169.254.169.254/a".into() },
                ErrorKind::Io,
                "`s3://b/k`: there are no credentials for the store",
            ),
            (
                asking("S3", "PUT http://169.254.169.254/latest/api/token", "403 Forbidden: "),
                ErrorKind::Io,
                "bucket): Generic S3 error: Error performing PUT http://169.254.169.254/latest",
            ),
            (
                asking("S3", "GET http://169.254.170.23/v1/credentials", "401 Unauthorized: "),
                ErrorKind::Io,
                "bucket): Generic S3 error: Error performing GET http://169.254.170.23/v1",
            ),
            (
                asking("S3", "POST REDACTED", "403 Forbidden: ExpiredToken"),
                ErrorKind::Io,
                "`s3://b/k`: Generic S3 error: Error performing POST REDACTED in",
            ),
            (
                asking("GCS", "token request: Error performing POST https://h/t", "401 No: "),
                ErrorKind::Io,
                "`s3://b/k`: Generic GCS error: Error performing token request: Error performing",
            ),
            (
                asking("S3", "GET https://h/b?prefix=secret", "403 Forbidden: No"),
                ErrorKind::Io,
                "`s3://b/k`: the store does not allow it: Generic S3 error: Error performing GET",
            ),
            (
                asking("GCS", "GET https://h/b", "401 Unauthorized: "),
                ErrorKind::Io,
                "the environment: Generic GCS error: Error performing GET https://h/b in",
            ),
            (
                StoreError::Generic { store: "S3", source: listing("403 Forbidden: No") },
                ErrorKind::Io,
                "`s3://b/k`: the store does not allow it: ",
            ),
            (
                StoreError::Generic { store: "S3", source: listing("403 Forbidden: InvalidToken") },
                ErrorKind::Io,
                "`s3://b/k`: the store does not accept who asks, see",
            ),
            (
                StoreError::Generic { store: "GCS", source: listing("401 Unauthorized") },
                ErrorKind::Io,
                "`s3://b/k`: the store does not accept who asks: give",
            ),
            (
                StoreError::Generic {
                    store: "S3",
                    source: "403: <Error><Code>ExpiredToken</Code><Message>It is old.</Message>\
                             <Token-0>secret</Token-0></Error>"
                        .into(),
                },
                ErrorKind::Io,
                "`s3://b/k`: Generic S3 error: 403: ExpiredToken: It is old",
            ),
            (
                StoreError::Generic { store: "S3", source: "x".repeat(2000).into() },
                ErrorKind::Io,
                "xxx...",
            ),
            (
                StoreError::NotFound { path: path(), source: ours() },
                ErrorKind::NoSpace,
                "`s3://b/k`: what is said",
            ),
        ];
        for (error, kind, said) in cases {
            let error = from_store("s3://b/k", error);
            assert_eq!(error.kind(), kind);
            let text = error.to_string();
            assert!(text.contains(said) && !text.contains("secret"), "{text}");
        }
    }
}
