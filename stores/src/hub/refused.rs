//! What the Hub says in place of an answer, as a person would say it, and what to do.

use onnx_container::{Error, ErrorKind};
use reqwest::{Response, StatusCode};

/// What was asked for.
#[derive(Clone, Copy)]
pub(super) enum Asked<'a> {
    /// The commit of a revision.
    Revision(&'a str),
    /// Something in a commit.
    Commit(&'a str),
}

/// The error of an answer that refuses.
///
/// A client without a token is told 401 of what is private, of what is gated and of what is not
/// there.
pub(super) fn refused(answer: &Response, repo: &str, asked: Asked<'_>, has_token: bool) -> Error {
    let code = answer.headers().get("x-error-code").and_then(|code| code.to_str().ok());
    let (kind, reason) = reason(answer.status(), code, repo, asked, has_token);
    Error::new(kind, reason)
}

fn reason(
    status: StatusCode,
    code: Option<&str>,
    repo: &str,
    asked: Asked<'_>,
    has_token: bool,
) -> (ErrorKind, String) {
    let gated = code == Some("GatedRepo");
    match (status, has_token) {
        (StatusCode::NOT_FOUND, _) => (ErrorKind::MissingFile, missing(code, repo, asked)),
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, false) if gated => {
            let reason = format!(
                "the repository `{repo}` is gated: ask for access on its page, and set HF_TOKEN"
            );
            (ErrorKind::Io, reason)
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, false) => {
            let reason = format!(
                "the repository `{repo}` is private, gated, or not there: set HF_TOKEN to a token \
                 that may read it"
            );
            (ErrorKind::Io, reason)
        }
        (StatusCode::UNAUTHORIZED, true) if !gated => {
            let reason = format!(
                "the Hub does not accept the token: set HF_TOKEN to one that may read `{repo}`"
            );
            (ErrorKind::Io, reason)
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, true) if gated => {
            let reason = format!(
                "the repository `{repo}` is gated, and the owner of the token has no access: ask \
                 for it on its page"
            );
            (ErrorKind::Io, reason)
        }
        (StatusCode::FORBIDDEN, true) => {
            let reason = format!(
                "the token may not read `{repo}`: give it the right to, or set another HF_TOKEN"
            );
            (ErrorKind::Io, reason)
        }
        (StatusCode::TOO_MANY_REQUESTS, false) => {
            let reason = "the Hub has had too many requests: wait, or set HF_TOKEN, which may make \
                          more";
            (ErrorKind::Io, reason.to_owned())
        }
        _ => (ErrorKind::Io, format!("the Hub answers `{status}`")),
    }
}

fn missing(code: Option<&str>, repo: &str, asked: Asked<'_>) -> String {
    match (code, asked) {
        (Some("RepoNotFound"), _) => {
            format!("the Hub has no repository `{repo}`, or none that the token may read")
        }
        (Some("RevisionNotFound"), Asked::Revision(revision) | Asked::Commit(revision)) => {
            format!("the repository `{repo}` has no revision `{revision}`")
        }
        (_, Asked::Revision(revision)) => {
            format!("the Hub has no repository `{repo}` with a revision `{revision}`")
        }
        (_, Asked::Commit(commit)) => {
            format!("the repository `{repo}` has no such file at commit {commit}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_what_to_do() {
        const REVISION: Asked<'_> = Asked::Revision("dev");
        const FILE: Asked<'_> = Asked::Commit("c0ffee");
        // Status, code, what was asked for, whether with a token, kind, and what is said.
        let cases = [
            (
                404,
                Some("EntryNotFound"),
                FILE,
                true,
                ErrorKind::MissingFile,
                "no such file at commit c0ffee",
            ),
            (
                404,
                Some("RevisionNotFound"),
                REVISION,
                true,
                ErrorKind::MissingFile,
                "`o/r` has no revision `dev`",
            ),
            (
                404,
                Some("RepoNotFound"),
                REVISION,
                true,
                ErrorKind::MissingFile,
                "no repository `o/r`",
            ),
            (404, None, REVISION, false, ErrorKind::MissingFile, "`o/r` with a revision `dev`"),
            (401, Some("RepoNotFound"), REVISION, false, ErrorKind::Io, "set HF_TOKEN"),
            (401, Some("GatedRepo"), FILE, false, ErrorKind::Io, "gated: ask for access"),
            (401, None, REVISION, true, ErrorKind::Io, "does not accept the token"),
            (403, Some("GatedRepo"), FILE, true, ErrorKind::Io, "has no access: ask for it"),
            (401, Some("GatedRepo"), FILE, true, ErrorKind::Io, "has no access: ask for it"),
            (403, None, FILE, true, ErrorKind::Io, "may not read `o/r`"),
            (403, None, FILE, false, ErrorKind::Io, "set HF_TOKEN"),
            (429, None, FILE, false, ErrorKind::Io, "too many requests"),
            (429, None, FILE, true, ErrorKind::Io, "answers `429 Too Many Requests`"),
            (500, None, FILE, false, ErrorKind::Io, "answers `500 Internal Server Error`"),
        ];
        for (status, code, asked, has_token, kind, said) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let (found, reason) = reason(status, code, "o/r", asked, has_token);
            assert_eq!(found, kind, "{reason}");
            assert!(reason.contains(said), "{reason}");
        }
    }
}
