//! MobileNet v1 and v2 from their papers alone (arXiv:1704.04861, 1801.04381): the table of
//! Pisarchyk and Lee (2020) has the same sums and minima.

use onnx_container_machine::plan::{Block, Plan, PlanOptions, plan};

/// A network under construction: every layer is one step, which writes one tensor. The image is the
/// caller's.
#[derive(Default)]
struct Network {
    blocks: Vec<Block>,
    /// The side and the channels of the newest tensor.
    shape: (u64, u64),
}

impl Network {
    /// A layer that reads the newest tensor and writes `side` x `side` x `channels` elements.
    fn layer(&mut self, side: u64, channels: u64) {
        let step = self.blocks.len() as u64;
        self.blocks.iter_mut().last().into_iter().for_each(|newest| newest.steps.end = step + 1);
        self.blocks.push(Block::new(step..step + 1, side * side * channels * 4));
        self.shape = (side, channels);
    }

    /// The sum of the newest tensor and the one of step `older`.
    fn add(&mut self, older: usize) {
        self.layer(self.shape.0, self.shape.1);
        self.blocks[older].steps.end = self.blocks.len() as u64;
    }

    /// The mean of each channel, then the classifier and its softmax.
    fn classify(mut self) -> Vec<Block> {
        let (_, channels) = self.shape;
        [channels, 1000, 1000].into_iter().for_each(|channels| self.layer(1, channels));
        self.blocks
    }
}

fn mobilenet_v1() -> Vec<Block> {
    let mut net = Network::default();
    net.layer(112, 32);
    let pairs = [(1, 64), (2, 128), (1, 128), (2, 256), (1, 256), (2, 512)];
    let more = [(1, 512); 5].into_iter().chain([(2, 1024), (1, 1024)]);
    for (stride, channels) in pairs.into_iter().chain(more) {
        let (side, depth) = net.shape;
        net.layer(side / stride, depth);
        net.layer(side / stride, channels);
    }
    net.classify()
}

fn mobilenet_v2() -> Vec<Block> {
    let mut net = Network::default();
    net.layer(112, 32);
    let rows = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ];
    for (expansion, channels, repeats, first_stride) in rows {
        for i in 0..repeats {
            let (input, (side, depth)) = (net.blocks.len() - 1, net.shape);
            let stride = if i == 0 { first_stride } else { 1 };
            if expansion > 1 {
                net.layer(side, depth * expansion);
            }
            net.layer(side / stride, depth * expansion);
            net.layer(side / stride, channels);
            if i > 0 {
                net.add(input);
            }
        }
    }
    net.layer(7, 1280);
    net.classify()
}

#[test]
fn the_plans_of_mobilenets_have_the_published_lengths() {
    let mebibytes = |bytes: u64| format!("{:.3}", bytes as f64 / f64::from(1 << 20));
    for (blocks, tensors, naive, arena) in
        [(mobilenet_v1(), 30, "19.248", "4.594"), (mobilenet_v2(), 65, "26.313", "5.742")]
    {
        assert_eq!(blocks.len(), tensors);
        let Plan { arena_bytes, lower_bound, naive_sum, .. } =
            plan(&blocks, PlanOptions::new()).unwrap();
        assert_eq!(mebibytes(naive_sum), naive);
        assert_eq!(mebibytes(arena_bytes), arena);
        assert_eq!(arena_bytes, lower_bound);
    }
}
