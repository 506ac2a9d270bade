//! One table of behaviours, over every store.

use std::time::Duration;

use onnx_container::check::{CheckOptions, check_bytes};
use onnx_container::{Container, ErrorKind, LoadOptions, SaveOptions, WeightFiles};
use onnx_container_store::object_store::{ObjectStoreExt, path::Path};
use onnx_container_store::{
    IfPresent, Publication, PublishOptions, Published, RemoteModel, Store, StoreOptions, StoreUrl,
    SweepOptions, fetch, load, probe, publish_in, rollback, sweep, versions,
};

use crate::fake_store::{Dialect, FakeStore};
use crate::jobs;
use crate::models::{MIB, assert_same, contents, model, renamed};
use crate::servers::{self, Place};

/// A store, and a folder in it that no other case uses.
pub struct Case {
    pub place: Place,
    pub store: Store,
    pub url: StoreUrl,
}

impl Case {
    pub fn publish(&self, container: &Container, options: impl Into<PublishOptions>) -> Published {
        publish_in(&self.store, &self.url, container, options).unwrap()
    }

    pub fn open(&self) -> RemoteModel {
        RemoteModel::open_in(&self.store, &self.url).unwrap()
    }

    pub fn load(&self) -> Container {
        self.open().load(LoadOptions::new()).unwrap()
    }

    /// The names of the objects in the folder.
    pub fn names(&self) -> Vec<String> {
        let folder = self.url.key().rsplit_once('/').unwrap().0;
        let prefix = Path::parse(folder).unwrap();
        let listed = wait(self.store.objects().list_with_delimiter(Some(&prefix))).unwrap();
        // SeaweedFS lists a folder that has become empty as an object.
        let objects = listed.objects.into_iter().filter(|meta| meta.location != prefix);
        let names = objects.map(|meta| meta.location.filename().unwrap().to_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// What a future of object_store ends with.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub type Behaviour = fn(&Case);

/// What holds for every store.
const BEHAVIOURS: [(&str, Behaviour); 12] = [
    ("every layout", every_layout),
    ("lengths about a part", lengths_about_a_part),
    ("more than two parts", more_than_two_parts),
    ("names", names),
    ("what is present", what_is_present),
    ("two writers", two_writers),
    ("versions of two writers", versions_of_two_writers),
    ("a dry run", a_dry_run),
    ("versions", versions_stay),
    ("a sweep", a_sweep),
    ("files that are gone or replaced", files_that_are_gone_or_replaced),
    ("a probe", a_probe),
];

/// Runs every behaviour, and says which one does not hold.
fn hold(place: &Place) {
    let all = BEHAVIOURS.iter().chain(&jobs::BEHAVIOURS);
    for (number, (name, behaviour)) in all.enumerate() {
        eprintln!("{}: {name}", place.name);
        let url = place.url(&format!("case-{number}/m.onnx"));
        behaviour(&Case { place: place.clone(), store: place.store(), url });
    }
}

#[test]
fn in_memory() {
    hold(&Place::memory());
}

#[test]
fn on_the_server_of_these_tests() {
    hold(&Place::fake(Dialect::S3));
}

#[test]
fn on_the_server_of_these_tests_as_google_cloud_storage() {
    hold(&Place::fake(Dialect::Gcs));
}

/// As it is in docs/stores.md.
#[test]
fn an_emulator_of_google_is_reached_by_its_address_or_by_an_account() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("account.json");
    let fake = FakeStore::speaking(Dialect::Gcs);
    std::fs::write(&file, fake.account()).unwrap();
    let address = format!("http://127.0.0.1:{}", fake.port);
    let cases = [
        vec![("google_base_url", address.as_str()), ("google_bearer_token", "any")],
        vec![("google_service_account", file.to_str().unwrap())],
    ];
    for set in cases {
        let options = StoreOptions::new().max_retries(0);
        let options = set.iter().fold(options, |options, (name, value)| options.set(*name, *value));
        let store = Store::open(&fake.url(""), &options).unwrap();
        let container = model(1, &[("w", 9 * MIB)]);
        fake.log();
        publish_in(&store, &fake.url("m.onnx"), &container, PublishOptions::new()).unwrap();
        assert_same(&fetched(&store, &fake.url("m.onnx")), &container);
        // It is not believed to be Google's.
        assert!(fake.log().iter().any(|(_, key)| key.contains("probe")), "{set:?}");
        let url = fake.url("m.onnx");
        wait(store.objects().delete(&Path::parse(url.key()).unwrap())).unwrap();
    }
}

#[test]
#[ignore = "needs servers: scripts/test.sh stores"]
fn on_servers() {
    std::thread::scope(|scope| {
        for place in servers::default_places() {
            scope.spawn(move || hold(&place));
        }
    });
}

#[test]
#[ignore = "needs servers: scripts/test.sh stores"]
fn on_azurite() {
    if let Some(place) = servers::extra("azurite", servers::azurite) {
        hold(&place);
    }
}

fn every_layout(case: &Case) {
    let container = model(1, &[("w", 2 * MIB + 1), ("b", 5), ("empty", 0)]);
    let digest = container.digest().unwrap();
    let options = || SaveOptions::new().digests(true);
    let cases = [
        // The layout, and how many weights files it has.
        (options(), 1),
        (options().weight_files(WeightFiles::PerTensor), 3),
        (options().weight_files(WeightFiles::Sharded { max_bytes: 1 << 20 }), 2),
        (options().weight_files(WeightFiles::Embedded), 0),
    ];
    for (options, files) in cases {
        let published = case.publish(&container, options.clone());
        assert_eq!(published.files.len(), files);
        assert!(published.files.iter().all(|file| file.sent));
        let opened = case.open();
        assert_eq!(opened.e_tag(), published.e_tag.as_deref());
        assert_same(&case.load(), &container);
        assert_same(&opened.fetch(LoadOptions::new()).unwrap(), &container);
        assert_eq!(case.load().digest().unwrap(), digest);
        let checked = CheckOptions::from(opened.load_options(LoadOptions::new()).unwrap());
        let checked = check_bytes(opened.bytes().clone(), checked.digests(true)).unwrap();
        assert!(checked.is_ok(), "{checked}");
        assert_eq!(checked.compared.unwrap().tensors, 3);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.onnx");
        case.load().save(&path, SaveOptions::new()).unwrap();
        assert_same(&Container::load(&path, LoadOptions::new()).unwrap(), &container);

        // What was loaded from the store is published as it is.
        let again = case.publish(&case.load(), options);
        assert!(again.files.iter().all(|file| !file.sent), "{again:?}");
    }
    if case.place.opened.is_none() {
        let (url, options) = (case.url.to_string(), &case.place.options);
        assert_same(&load(&url, options, LoadOptions::new()).unwrap(), &container);
        assert_same(&fetch(&url, options, LoadOptions::new()).unwrap(), &container);
    }
}

fn lengths_about_a_part(case: &Case) {
    for part in [5 * MIB, 8 * MIB] {
        for len in [part - 1, part, part + 1] {
            let container = model(len as u8, &[("w", len)]);
            let published = case.publish(&container, PublishOptions::new());
            assert_eq!(published.files[0].bytes, len as u64);
            assert_same(&case.load(), &container);
        }
    }
}

fn more_than_two_parts(case: &Case) {
    let container = model(2, &[("w", 17 * MIB), ("b", 5)]);
    case.publish(&container, PublishOptions::new());
    assert_same(&case.load(), &container);
    assert_same(&case.open().fetch(LoadOptions::new()).unwrap(), &container);
}

fn names(case: &Case) {
    let container = model(3, &[("w", 1000), ("x y/z", 5)]);
    for name in ["a b#1.onnx", "%+é [x].onnx", "sub dir/%20#é+/m&'~.onnx", "m.onnx.onnx"] {
        let url = case.url.beside(name).unwrap();
        for files in [WeightFiles::Packed, WeightFiles::PerTensor] {
            let options = PublishOptions::new().save(files).keep(1);
            publish_in(&case.store, &url, &container, options).unwrap();
            let opened = RemoteModel::open_in(&case.store, &url).unwrap();
            assert_same(&opened.load(LoadOptions::new()).unwrap(), &container);
        }
        assert_eq!(versions(&case.store, &url).unwrap().len(), 1, "{name}");
        let folder = url.key().rsplit_once('/').unwrap().0;
        let folder = StoreUrl::parse(&format!("{}/{folder}", url.root())).unwrap();
        let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
        sweep(&case.store, &folder, &all).unwrap();
        assert_same(&fetched(&case.store, &url), &container);
    }
}

fn fetched(store: &Store, url: &StoreUrl) -> Container {
    RemoteModel::open_in(store, url).unwrap().fetch(LoadOptions::new()).unwrap()
}

fn what_is_present(case: &Case) {
    let containers: Vec<_> = (0..6).map(|seed| model(seed, &[("w", 100)])).collect();
    let publish = |number: usize, if_present| {
        let options = PublishOptions::new().if_present(if_present);
        publish_in(&case.store, &case.url, &containers[number], options)
    };
    let is = |number: usize| assert_same(&case.load(), &containers[number]);
    let version = |tag: &Option<String>| IfPresent::ReplaceVersion(tag.clone().unwrap());

    let error = publish(0, version(&Some("\"none\"".into()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    let first = publish(0, IfPresent::Refuse).unwrap().e_tag;
    is(0);
    let error = publish(1, IfPresent::Refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    is(0);
    publish(1, IfPresent::Replace).unwrap();
    is(1);
    let error = publish(2, version(&first)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    is(1);
    let now = case.open().e_tag().map(str::to_owned);
    // As a shell passes it on.
    let bare = now.as_ref().map(|tag| tag.trim_matches('"').to_owned());
    publish(2, version(&bare)).unwrap();
    is(2);
    publish(3, IfPresent::Overwrite).unwrap();
    is(3);
}

/// Of two writers, the one that comes late leaves no version.
fn versions_of_two_writers(case: &Case) {
    let keep = || PublishOptions::new().keep(2);
    let begun = Publication::new(&case.store, &case.url, &keep()).unwrap();
    let first = case.publish(&model(1, &[("w", 100)]), keep());
    let late = model(2, &[("w", 100)]).prepare("m.onnx", SaveOptions::new()).unwrap();
    let error = begun.publish(late).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    let made = first.version.unwrap();
    assert_eq!(versions(&case.store, &case.url).unwrap(), [made]);
    let dry = case.publish(&model(3, &[("w", 100)]), PublishOptions::new().keep(1).dry_run(true));
    assert_eq!(dry.removed, versions(&case.store, &case.url).unwrap());
    assert_eq!(dry.removed.len(), 1);
}

fn two_writers(case: &Case) {
    let (one, two) = (model(1, &[("w", 100)]), model(2, &[("w", 100)]));
    for present in [false, true] {
        if present {
            case.publish(&model(0, &[("w", 100)]), PublishOptions::new());
        }
        let options = PublishOptions::new();
        let begin = || Publication::new(&case.store, &case.url, &options).unwrap();
        let prepared = |container: &Container| container.prepare("m.onnx", SaveOptions::new());
        let (first, second) = (begin(), begin());
        second.publish(prepared(&two).unwrap()).unwrap();
        let error = first.publish(prepared(&one).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert!(error.to_string().contains(case.url.name()), "{error}");
        assert_same(&case.load(), &two);
        wait(case.store.objects().delete(&Path::parse(case.url.key()).unwrap())).unwrap();
    }
}

fn a_dry_run(case: &Case) {
    let container = model(1, &[("w", 100)]);
    let dry = || PublishOptions::new().dry_run(true).keep(1);
    let said = case.publish(&container, dry());
    assert!(said.files[0].sent && said.version.is_some());
    assert_eq!(case.names(), [""; 0]);
    let done = case.publish(&container, PublishOptions::new());
    assert_eq!(said.files, done.files);
    let names = case.names();
    assert!(!case.publish(&container, dry()).files[0].sent);
    assert_eq!(case.names(), names);
}

fn versions_stay(case: &Case) {
    let containers: Vec<_> = (0..3).map(|seed| model(seed, &[("w", 100)])).collect();
    let mut made = Vec::new();
    for container in &containers {
        let published = case.publish(container, PublishOptions::new().keep(2));
        made.push(published.version.unwrap());
    }
    for (number, container) in containers.iter().enumerate() {
        // Also where many are made in one second.
        let url = case.url.beside(&format!("other-{number}/m.onnx")).unwrap();
        for container in [container, &containers[0], container] {
            let options = PublishOptions::new().keep(1);
            let published = publish_in(&case.store, &url, container, options).unwrap();
            assert_eq!(versions(&case.store, &url).unwrap(), [published.version.unwrap()]);
        }
        delete_below(case, &url);
    }
    let found = versions(&case.store, &case.url).unwrap();
    assert_eq!(found.len(), 2);
    assert!(found.contains(&made[2]), "{found:?}");
    let kept = if found.contains(&made[1]) { 1 } else { 0 };

    // Its weights file is named by the version alone, so a sweep leaves it.
    let folder = case.place.url(case.url.key().rsplit_once('/').unwrap().0);
    let all = SweepOptions::new().older_than(Duration::ZERO).delete(true);
    let swept = sweep(&case.store, &folder, &all).unwrap();
    assert_eq!((swept.models, swept.named, swept.swept.len()), (3, 2, 1));
    let options = PublishOptions::new();
    let back = rollback(&case.store, &case.url, &made[kept], &options).unwrap();
    assert!(back.files.iter().all(|file| !file.sent));
    assert_same(&case.load(), &containers[kept]);

    let wrong = PublishOptions::new().if_present(IfPresent::ReplaceVersion("other".into()));
    let error = rollback(&case.store, &case.url, &made[kept], &wrong.dry_run(true)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    let other = case.url.beside("other.onnx").unwrap();
    let error = rollback(&case.store, &other, &made[kept], &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    let error = rollback(&case.store, &case.url, &made[1 - kept], &options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
    assert_same(&case.load(), &containers[kept]);
}

/// Deletes what is in the folder of a model.
fn delete_below(case: &Case, url: &StoreUrl) {
    let folder = Path::parse(url.key().rsplit_once('/').unwrap().0).unwrap();
    let listed = wait(case.store.objects().list_with_delimiter(Some(&folder))).unwrap();
    for meta in listed.objects.iter().filter(|meta| meta.location != folder) {
        wait(case.store.objects().delete(&meta.location)).unwrap();
    }
}

fn a_sweep(case: &Case) {
    let (old, new) = (model(1, &[("w", 100)]), model(2, &[("w", 100)]));
    let old_file = &case.publish(&old, PublishOptions::new()).files[0].name;
    let new_file = &case.publish(&new, PublishOptions::new()).files[0].name;
    let of_others = [("other.data", "x"), ("m.onnx.data", "y")];
    for (name, bytes) in of_others {
        let key = Path::parse(case.url.beside(name).unwrap().key()).unwrap();
        wait(case.store.objects().put(&key, bytes.into())).unwrap();
    }
    let folder = case.place.url(case.url.key().rsplit_once('/').unwrap().0);
    let run = |options: &SweepOptions| sweep(&case.store, &folder, options).unwrap();
    let named = |swept: &[onnx_container_store::SweptObject]| -> Vec<String> {
        swept.iter().map(|object| object.url.name().to_owned()).collect()
    };
    let young = run(&SweepOptions::new().delete(true));
    assert_eq!((named(&young.young), young.swept.len()), (vec![old_file.clone()], 0));
    let all = SweepOptions::new().older_than(Duration::ZERO);
    let told = run(&all);
    assert_eq!((told.models, told.named, named(&told.swept)), (1, 1, vec![old_file.clone()]));
    assert!(case.names().contains(old_file));
    assert_eq!(named(&run(&all.delete(true)).swept), vec![old_file.clone()]);
    let mut left = vec!["m.onnx", "m.onnx.data", "other.data", new_file];
    left.sort();
    assert_eq!(case.names(), left);
    assert_same(&case.load(), &new);
}

fn files_that_are_gone_or_replaced(case: &Case) {
    let container = model(1, &[("w", MIB)]);
    let put = |url: &StoreUrl, bytes: Vec<u8>| {
        let key = Path::parse(url.key()).unwrap();
        wait(case.store.objects().put(&key, bytes.into())).unwrap();
    };
    let file = case.publish(&container, PublishOptions::new()).files[0].name.clone();
    let file = case.url.beside(&file).unwrap();
    for len in [MIB, MIB - 1] {
        case.publish(&container, PublishOptions::new());
        put(&file, vec![1; MIB]);
        let loaded = case.load();
        put(&file, vec![2; len]);
        let error = contents(&loaded).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert!(error.to_string().contains(file.name()), "{error}");
    }
    wait(case.store.objects().delete(&Path::parse(file.key()).unwrap())).unwrap();
    let error = case.open().load(LoadOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
    assert!(error.to_string().contains(file.name()), "{error}");
    let without = case.open().load(LoadOptions::new().weights(false)).unwrap();
    assert!(without.model().graph.is_some());
    // It is sent again, as it is not there.
    let again = case.publish(&renamed(container, "again"), PublishOptions::new());
    assert!(again.files[0].sent);
}

fn a_probe(case: &Case) {
    let found = probe(&case.store, &case.url).unwrap();
    assert!(found.publishes() && found.tags && found.ranges && found.read_condition, "{found:?}");
    assert_eq!(case.names(), [""; 0]);
}

/// Reading from a web server what a save has written.
#[test]
#[ignore = "needs servers: scripts/test.sh stores"]
fn on_nginx() {
    let Some((port, folder)) = servers::extra("nginx", servers::nginx) else { return };
    let container = model(1, &[("w", 9 * MIB), ("b", 5), ("empty", 0)]);
    for (name, address) in
        [("m.onnx", "m.onnx"), ("a b#%é+[x].onnx", "a%20b%23%25%C3%A9+%5Bx%5D.onnx")]
    {
        let options = SaveOptions::new().digests(true);
        container.save(folder.join(name), options).unwrap();
        let url = format!("http://127.0.0.1:{port}/{address}");
        let options = onnx_container_store::StoreOptions::new().max_retries(0);
        let opened = RemoteModel::open(&url, &options).unwrap();
        assert_same(&opened.load(LoadOptions::new()).unwrap(), &container);
        assert_same(&opened.fetch(LoadOptions::new()).unwrap(), &container);
        let checked = CheckOptions::from(opened.load_options(LoadOptions::new()).unwrap());
        let checked = check_bytes(opened.bytes().clone(), checked.digests(true)).unwrap();
        assert!(checked.is_ok(), "{checked}");

        let loaded = opened.load(LoadOptions::new()).unwrap();
        let data = folder.join(format!("{name}.data"));
        std::fs::write(&data, vec![7; std::fs::metadata(&data).unwrap().len() as usize - 1])
            .unwrap();
        let error = contents(&loaded).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        let url = StoreUrl::parse(&url).unwrap();
        let store = Store::open(&url, &options).unwrap();
        let error = publish_in(&store, &url, &container, PublishOptions::new()).unwrap_err();
        assert!(error.to_string().contains("for reading only"), "{error}");
    }
    let none = format!("http://127.0.0.1:{port}/none.onnx");
    let error = RemoteModel::open(&none, &onnx_container_store::StoreOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MissingFile, "{error}");
}
