//! The built-in kernels, one file per family. How to add one:
//!
//! 1. Put two functions in the file of its family and a line in that file's `KERNELS`; a new file
//!    gets its `mod` and its place in [`all`] below, both in alphabetical order.
//! 2. `infer(call)` gives the type and shape of every output, from `call.dtype(i)?`,
//!    `call.shape(i)?`, attributes (`call.int_or("axis", -1)?`) and, where a shape depends on them,
//!    the elements of inputs (`call.integers(1)?`, `call.input::<T>(i)?`). Elements may not be
//!    known yet: `?` passes that on.
//! 3. `run(cx)` has all that `call` has, and writes: `cx.output::<T>(j)?` is the `&mut [T]` of
//!    output `j`, which can be taken once and has to be filled. Inputs and outputs are row-major
//!    slices; what borrows from `cx` lives as long as the step. Optional ones: `cx.has_input(i)`,
//!    `cx.input_if`, `cx.has_output(j)`, `cx.output_if`. One kernel serves all versions of an
//!    operator: `if cx.version() < 13 { .. }`.
//! 4. Types are chosen by `for_type!(cx.dtype(0)?, floats, T => ..)`. Floats are computed in
//!    `Float::Real` (`f32` for FLOAT16 and BFLOAT16) by `x.widen()` and `T::round_from(..)`; sums
//!    go from the first element to the last. exp, tanh and the like are called in functions generic
//!    over `R: Real`, which have `libm`'s; on a plain `f32` they would be the platform's, which
//!    clippy denies.
//! 5. What only moves elements is a list of runs for [`arrange`](crate::kernel::arrange::arrange),
//!    for every type at once. Strings, sequences, optionals and maps: `cx.strings(i)?`,
//!    `cx.outside(i)?`, `cx.set_strings(j, ..)`, `cx.set(j, ..)`. Elements narrower than a byte:
//!    `cx.codes(i)?`, `cx.set_codes(j, ..)`.
//! 6. A kernel for many types keeps to the loops in `loops`, `lines` and `reduce`: what is generic
//!    over the operator is the innermost loop over slices alone, and what is around it is compiled
//!    once for each type.
//! 7. Processors differ in the bits of a NaN. The machine replaces those that a kernel leaves,
//!    unless the operator is in `MOVING` or `SETTLED` below or is elementwise, where the loops in
//!    `loops` do.
//! 8. Nothing panics: wrong input is an `Error` of kind `Shape`, `Value`, `Type` or `InvalidModel`
//!    that says what is wrong; node and step are added by the machine. `cargo run -p
//!    onnx-container-drivers --bin node_tests -- --only Trilu`.
//!
//! ```ignore
//! Builtin::new("Hardmax", same, hardmax), // in KERNELS; `same`: the type and shape of input 0
//!
//! /// 1 for the first maximum along `axis`, else 0.
//! fn hardmax(cx: &mut RunCx<'_>) -> Result<()> {
//!     let shape = cx.shape(0)?;
//!     let (outer, dim, inner) = around(&shape, axis(cx.int_or("axis", -1)?, shape.len())?);
//!     for_type!(cx.dtype(0)?, floats, T => {
//!         let (input, output) = (cx.input::<T>(0)?, cx.output::<T>(0)?);
//!         ..
//!     })
//! }
//! ```

#[macro_use] // for its macros `unary!` and `float!`
mod elementwise;

pub(crate) mod registry;

mod activation;
mod along;
mod attention;
mod attention_bias;
mod batch_norm;
mod cast;
mod category;
mod causal_conv;
mod conv;
mod conv_transpose;
mod deform_conv;
mod det;
mod dropout;
mod einsum;
mod fast;
mod fourier;
mod fused_matmul;
mod gather;
mod gather_quantized;
mod gelu;
mod gemm;
mod grid;
mod group_query;
mod image;
mod label_encoder;
mod linear;
mod linear_attention;
mod loops;
mod loss;
mod maps;
mod matmul;
mod matmul_nbits;
mod ml;
mod movement;
mod normalization;
mod optional;
mod packed_codes;
mod pad;
mod pattern;
mod pool;
mod power;
mod qgemm;
mod qlinear;
mod qlinear_pool;
mod quantize;
mod quantized_matmul;
mod random;
mod recurrent;
mod reduce;
mod regex_dialect;
mod resize;
mod resize_scale;
mod roi;
mod rotary;
mod scatter;
mod scores;
mod sequence;
mod signal;
mod skip_norm;
mod softmax;
mod space;
mod spectrum;
mod split;
mod string;
mod suppression;
mod svm;
mod tfidf;
mod training;
mod transposed_matmul;
mod tree;
mod unique;
mod window;
mod words;

pub use self::transposed_matmul::{INTERNAL_DOMAIN, TRANSPOSED_MATMUL};
use crate::kernel::Builtin;
use crate::numeric::profile::Profile;

/// The operators whose kernels are [elementwise](crate::Kernel::is_elementwise), in the order of
/// their bytes.
const ELEMENTWISE: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Where",
    "Xor",
];

/// The operators that only move elements, and so keep the bits of a NaN, as those whose output is a
/// view of their input do; in the order of their bytes.
const MOVING: &[&str] = &[
    "CenterCropPad",
    "Compress",
    "Concat",
    "ConcatFromSequence",
    "ConstantOfShape",
    "DepthToSpace",
    "Expand",
    "Gather",
    "GatherElements",
    "GatherND",
    "OneHot",
    "Optional",
    "OptionalGetElement",
    "Pad",
    "ReverseSequence",
    "SequenceAt",
    "Slice",
    "SpaceToDepth",
    "Split",
    "SplitToSequence",
    "TensorScatter",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unique",
    "Where",
];

/// The operators beside the elementwise ones whose kernels write the one NaN themselves, in the
/// loops that write their large results.
const SETTLED: &[&str] = &["CastLike", "Conv", "MatMul"];

/// The built-in kernels of `profile`; one that comes later replaces another of the same operator
/// and version.
pub(crate) fn of(profile: Profile) -> impl Iterator<Item = Builtin> {
    let fast = [
        conv::FAST,
        fast::KERNELS,
        fused_matmul::FAST,
        gemm::FAST,
        group_query::FAST,
        matmul::FAST,
        matmul_nbits::FAST,
        transposed_matmul::FAST,
    ];
    let fast = fast.into_iter().flatten().filter(move |_| profile == Profile::Fast);
    let all = strict().into_iter().flatten().chain(fast);
    all.map(|kernel| {
        let (op_type, domain, _) = kernel.meaning();
        let is_in = |list: &[&str]| domain.is_empty() && list.binary_search(&op_type).is_ok();
        let is_elementwise = is_in(ELEMENTWISE);
        let kernel = if is_elementwise { kernel.elementwise() } else { *kernel };
        let leaves_nans = !is_elementwise && !is_in(MOVING) && !is_in(SETTLED);
        if leaves_nans { kernel } else { kernel.without_nans() }
    })
}

/// The kernels of every operator.
fn strict() -> impl IntoIterator<Item = &'static [Builtin]> {
    [
        activation::KERNELS,
        along::KERNELS,
        attention::KERNELS,
        batch_norm::KERNELS,
        cast::KERNELS,
        category::KERNELS,
        causal_conv::KERNELS,
        conv::KERNELS,
        conv_transpose::KERNELS,
        deform_conv::KERNELS,
        det::KERNELS,
        dropout::KERNELS,
        einsum::KERNELS,
        elementwise::KERNELS,
        fused_matmul::KERNELS,
        gather::KERNELS,
        gather_quantized::KERNELS,
        gelu::KERNELS,
        gemm::KERNELS,
        grid::KERNELS,
        group_query::KERNELS,
        image::KERNELS,
        label_encoder::KERNELS,
        linear::KERNELS,
        linear_attention::KERNELS,
        loss::KERNELS,
        maps::KERNELS,
        matmul::KERNELS,
        matmul_nbits::KERNELS,
        ml::KERNELS,
        movement::KERNELS,
        normalization::KERNELS,
        optional::KERNELS,
        pad::KERNELS,
        pattern::KERNELS,
        pool::KERNELS,
        qgemm::KERNELS,
        qlinear::KERNELS,
        qlinear_pool::KERNELS,
        quantize::KERNELS,
        quantized_matmul::KERNELS,
        random::KERNELS,
        recurrent::KERNELS,
        reduce::KERNELS,
        resize::KERNELS,
        roi::KERNELS,
        rotary::KERNELS,
        scatter::KERNELS,
        sequence::KERNELS,
        signal::KERNELS,
        skip_norm::KERNELS,
        softmax::KERNELS,
        space::KERNELS,
        spectrum::KERNELS,
        split::KERNELS,
        string::KERNELS,
        suppression::KERNELS,
        svm::KERNELS,
        tfidf::KERNELS,
        training::KERNELS,
        transposed_matmul::KERNELS,
        tree::KERNELS,
        unique::KERNELS,
    ]
}
