//! What `verify-signature` says of files and content that are not as they were signed, and why.
