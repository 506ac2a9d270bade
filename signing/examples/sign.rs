//! Signs a model and verifies it: `cargo run -p onnx-container-signing --example sign MODEL KEY`,
//! with a key such as `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256` prints.

use std::env::args;
use std::error::Error;

use onnx_container_signing::{PrivateKey, SignOptions, VerifyOptions, sign, verify};

fn main() -> Result<(), Box<dyn Error>> {
    let (Some(model), Some(key)) = (args().nth(1), args().nth(2)) else {
        return Err("give a model and a private key".into());
    };
    let key = PrivateKey::read(key)?;
    let public_key = key.public_key();
    let signed = sign(&model, &SignOptions::new(key))?;
    println!("signed {:?} in {}", signed.files, signed.signature.display());
    verify(&model, &VerifyOptions::new(public_key))?;
    println!("verified");
    Ok(())
}
