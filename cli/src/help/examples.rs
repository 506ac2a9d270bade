//! Two calls of each command, for its help.

/// The arguments of two calls of the command `name`.
pub fn examples(name: &str) -> &'static [&'static str] {
    match name {
        "inspect" => &["model.onnx", "s3://models/m.onnx --tree --depth 2"],
        "files" => &["model.onnx", "-0 model.onnx | xargs -0 ls -l"],
        "check" => &["models/", "model.onnx --digests"],
        "scan" => &["models/", "models/ --equal"],
        "digest" => &["model.onnx", "--files model.onnx | sha256sum -c"],
        "diff" => &["old.onnx new.onnx --stats", "old.onnx new.onnx --semantic"],
        "stats" => &["model.onnx", "model.onnx 'layers.3.*' --json"],
        "report" => &["model.onnx -o model.html --stats", "old.onnx new.onnx -o changes.html"],
        "pack" => &["s3://models/m.onnx m.onnx", "model.onnx web/model.onnx --max-shard-size 1GB"],
        "split" => &["model.onnx split/model.onnx", "model.onnx split/model.onnx --min-bytes 1MB"],
        "embed" => &["model.onnx single.onnx", "model.onnx single.onnx --verify"],
        "edit" => &[
            "model.onnx model.onnx --set-metadata version=2",
            "model.onnx new.onnx --rename-input x=tokens",
        ],
        "cast" => &[
            "model.onnx half.onnx --to float16 --keep-io",
            "model.onnx half.onnx --to bfloat16 --verify",
        ],
        "inline-functions" => {
            &["model.onnx flat.onnx", "model.onnx flat.onnx --only pkg.nn::Block"]
        }
        "extract" => &["model.onnx embedding -o embedding.npy", "model.onnx w b -o weights/"],
        "replace" => &[
            "model.onnx embedding new.npy -o tuned.onnx",
            "model.onnx w w.npy -o model.onnx --tied all",
        ],
        "import-safetensors" => &[
            "model.onnx tuned.safetensors tuned.onnx",
            "model.onnx w.safetensors new.onnx --strict",
        ],
        "export-safetensors" => &[
            "model.onnx weights.safetensors",
            "model.onnx weights.safetensors --max-shard-size 5GB",
        ],
        "strip" => &["model.onnx structure.onnx", "model.onnx structure.onnx --dry-run"],
        "attach" => &[
            "structure.onnx model.onnx whole.onnx",
            "structure.onnx model.onnx whole.onnx --verify",
        ],
        "extract-model" => &[
            "model.onnx head.onnx --inputs x --outputs h",
            "model.onnx tail.onnx --inputs h,mask --outputs y",
        ],
        "merge" => &[
            "front.onnx back.onnx whole.onnx --connect h=h",
            "a.onnx b.onnx both.onnx --connect y=x --prefix-b b.",
        ],
        "share" => &["encoder.onnx decoder.onnx", "a.onnx b.onnx --data-name shared.data"],
        "mv" => &["model.onnx release.onnx", "encoder.onnx decoder.onnx release/"],
        "cp" => &["model.onnx copy.onnx", "snapshots/main/model.onnx release/"],
        "rm" => &["model.onnx --dry-run", "old/a.onnx old/b.onnx"],
        "job" => &["rewrite model.onnx new.onnx --parts 64 -o new.job", "write new.job 0"],
        "publish" => &["model.onnx s3://models/m.onnx", "model.onnx s3://models/m.onnx --keep 3"],
        "rollback" => {
            &["s3://models/m.onnx 20261127T181530", "s3://models/m.onnx 20261127T181530 --dry-run"]
        }
        "versions" => &["s3://models/m.onnx", "s3://models/m.onnx --json"],
        "sweep" => &["s3://models/", "s3://models/ --older-than 30d --delete"],
        "stores" => &["probe s3://models/", "probe s3://models/whisper/m.onnx"],
        "recover" => &["models/", "model.onnx"],
        "sign" => &["model.onnx --key key.pem", "models/m.onnx --key key.pem --all-files"],
        "verify-signature" => &["model.onnx --key key.pub", "model.onnx --key key.pub --json"],
        "plan" => &["model.onnx --dim batch=1", "model.onnx --dim batch=1 --svg plan.svg"],
        "run" => &["model.onnx --dim batch=1", "model.onnx --input x=x.npy -o out --timings"],
        "trace" => {
            &["model.onnx --dim batch=1 -o run.jsonl", "diff old.onnx new.onnx --dim batch=1"]
        }
        "verify" => &["model.onnx packed.onnx", "model.onnx half.onnx --rtol 1e-2 --dim batch=1"],
        "completions" => &["bash > onnx-container.bash", "zsh > ~/.zfunc/_onnx-container"],
        "man" => &["man/", "~/.local/share/man/man1"],
        _ => &[],
    }
}
