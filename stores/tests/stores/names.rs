//! Weights files whose names look like those of a publication.

use onnx_container::{LoadOptions, SaveOptions};
use onnx_container_store::{PublishOptions, RemoteModel, publish_in};

use crate::models::{assert_same, model};
use crate::servers::Place;

const LEN: usize = 1000;

#[test]
fn a_file_that_is_called_as_another_one_of_a_publication_is_not_taken_for_it() {
    let place = Place::memory();
    let (store, url) = (place.store(), place.url("m.onnx"));
    let (first, second) = (model(1, &[("w", LEN)]), model(2, &[("w", LEN)]));
    let published = publish_in(&store, &url, &first, PublishOptions::new()).unwrap();
    let name = published.files[0].name.clone();
    let named = PublishOptions::from(SaveOptions::new().data_name(name));
    publish_in(&store, &url, &second, named).unwrap();
    for container in [&first, &second] {
        publish_in(&store, &url, container, PublishOptions::new()).unwrap();
        let loaded = RemoteModel::open_in(&store, &url).unwrap().load(LoadOptions::new()).unwrap();
        assert_same(&loaded, container);
    }
}
