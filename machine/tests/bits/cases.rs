//! Every operator that computes, with inputs that it takes, and how to run them.
//!
//! A line is `operators | attributes | inputs`, with a name for each of several operators. An input
//! is a kind and a shape: `T` a float of the type in question, `F` FLOAT, `f` FLOAT that is plain,
//! `h` 0.5, `u` UINT8, `c` INT8, `i` INT64 0, 1, 2.., `s` INT64 and `n` INT32 with one value, `b`
//! BOOL, and `-` is one that is left out. An attribute is an integer, a float, integers in
//! brackets, or a word. `@N` is a version, 26 without one.

use half::{bf16, f16};
use onnx_container::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
};
use onnx_container::{Buffer, Container, DataType, Tensor};
use onnx_container_machine::{
    Machine, Profile, Program, ProgramOptions, Registry, Result, RunLimits, Value,
};

pub const CASES: &str = "
Abs Neg Sign Reciprocal Sqrt Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Ceil Floor Round IsNaN IsInf | | T:5x7
Relu Sigmoid Softplus Softsign HardSwish LeakyRelu ThresholdedRelu Elu Selu Celu HardSigmoid Swish Shrink Gelu Mish | | T:5x7
Selu@1 Elu@1 LeakyRelu@1 HardSigmoid@1 Clip@6 Softmax@1 LogSoftmax@1 Hardmax@1 LpNormalization@1 | | T:5x7
Gelu | approximate=tanh | T:5x7
Add Sub Mul Div PRelu Pow Less LessOrEqual Greater GreaterOrEqual Equal | | T:5x7 T:7
Mod | fmod=1 | T:5x7 T:7
Mod@28 | | T:5x7 T:7
Sum Max Min Mean | | T:5x7 T:7 T:5x1
Sum@13 Max@13 Min@13 Mean@13 | | T:5x7
Clip | | T:5x7 T: T:
Cast | to=1 | T:5x7
Cast | to=10 | T:5x7
Cast | to=11 | T:5x7
Cast | to=16 | T:5x7
Cast | to=3 | T:5x7
Cast | to=2 | T:5x7
Cast | to=7 | T:5x7
Cast | to=8 | T:5x7
Cast | to=17 | T:5x7
Cast | to=18 | T:5x7
Cast | to=19 | T:5x7
Cast | to=20 | T:5x7
Cast | to=22 | T:5x7
Cast | to=23 | T:5x7
Cast | to=24 | T:5x7
CastLike | | T:5x7 f:1
Softmax LogSoftmax Hardmax | | T:5x7
MatMul | | T:5x7 T:7x3
MatMul | | T:5x7 T:7x140
MatMul | | T:1x7 T:7x9
MatMul | | T:7x1 T:1x1
Gemm | alpha=0.5 beta=2.0 transB=1 | T:5x7 T:3x7 T:3
Gemm | | T:5x7 T:7x3
Einsum | equation=ij,jk->ik | T:5x7 T:7x3
Conv | | T:1x4x6x6 T:3x4x3x3 T:3
Conv | group=4 | T:1x4x6x6 T:4x1x3x3
Conv | pads=[1,1,1,1] strides=[2,2] | T:1x2x6x6 T:3x2x1x1
ConvTranspose | strides=[2,2] | T:1x2x3x3 T:2x2x3x3 T:2
DeformConv | | T:1x1x4x4 T:1x1x2x2 T:1x8x3x3
MaxPool AveragePool LpPool | kernel_shape=[2,2] | T:1x2x5x5
MaxPool AveragePool LpPool | kernel_shape=[2,2] ceil_mode=1 strides=[2,2] | T:1x2x5x5
GlobalMaxPool GlobalAveragePool GlobalLpPool | | T:1x2x5x5
MaxUnpool | kernel_shape=[2,2] strides=[2,2] | T:1x1x2x2 i:1x1x2x2
MaxRoiPool | pooled_shape=[2,2] | T:1x1x4x4 r:1x5
RoiAlign | output_height=2 output_width=2 | T:1x1x4x4 f:1x4 s:1=0
RoiAlign | output_height=2 output_width=2 mode=max | T:1x1x4x4 f:1x4 s:1=0
LRN | size=3 | T:1x4x3x3
BatchNormalization | | T:2x3x4 T:3 T:3 T:3 T:3
BatchNormalization | training_mode=1 | T:2x3x4 T:3 T:3 T:3 T:3
InstanceNormalization | | T:2x3x4 T:3 T:3
LayerNormalization | | T:5x7 T:7 T:7
RMSNormalization | | T:5x7 T:7
GroupNormalization | num_groups=2 | T:2x4x3 T:4 T:4
LpNormalization MeanVarianceNormalization@13 | | T:2x3x4x2
ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp | | T:5x7 s:1=1
ReduceSum ReduceMean | keepdims=0 | T:5x7 s:1=0
ArgMax ArgMin | axis=1 | T:5x7
CumSum CumProd | | T:5x7 s:=1
TopK | | T:5x7 s:1=3
Det | | T:2x3x3
Trilu Transpose Identity Flatten | | T:5x7
Where | | b:5x7 T:5x7 T:7
Concat | axis=0 | T:5x7 T:2x7
Gather | | T:5x7 i:3
GatherND | | T:5x7 i:2x1
Expand | | T:1x7 s:2=7
Tile | | T:5x7 s:2=2
Pad | | T:5x7 i:4
Slice | | T:5x7 s:1=1 s:1=4
Compress | axis=0 | T:5x7 b:5
Unique | | T:8
ScatterElements | reduction=add | T:5x7 i:1x3 T:1x3
ScatterND | reduction=mul | T:5x7 i:2x1 T:2x7
DepthToSpace | blocksize=2 | T:1x4x2x2
SpaceToDepth | blocksize=2 | T:1x1x4x4
Resize | mode=linear | T:1x1x4x4 - g:4
Resize | mode=cubic | T:1x1x4x4 - g:4
Resize | mode=nearest | T:1x1x4x4 - g:4
Resize | mode=linear antialias=1 | T:1x1x4x4 - - s:4=2
Resize | mode=linear keep_aspect_ratio_policy=not_larger | T:1x1x4x4 - - s:4=3
Resize | mode=linear keep_aspect_ratio_policy=not_smaller | T:1x1x4x4 - - s:4=3
Resize | mode=linear coordinate_transformation_mode=tf_crop_and_resize | T:1x1x4x4 h:8 - s:4=3
GridSample | | T:1x1x4x4 T:1x2x2x2
AffineGrid | | T:3x2x3 s:4=3
Col2Im | | T:1x4x4 s:2=3 s:2=2
RNN | hidden_size=3 | T:4x2x3 T:1x3x3 T:1x3x3
GRU | hidden_size=3 | T:4x2x3 T:1x9x3 T:1x9x3
LSTM | hidden_size=3 | T:4x2x3 T:1x12x3 T:1x12x3
Attention | | T:1x2x3x4 T:1x2x5x4 T:1x2x5x4
Attention | softmax_precision=10 | T:1x2x3x4 T:1x2x5x4 T:1x2x5x4
Attention | softmax_precision=16 | T:1x2x3x4 T:1x2x5x4 T:1x2x5x4
Attention | softmax_precision=11 softcap=3.0 | T:1x2x3x4 T:1x2x5x4 T:1x2x5x4
RotaryEmbedding | | T:1x2x3x4 T:1x3x2 T:1x3x2
QuantizeLinear | | T:5x7 T: u:
QuantizeLinear | output_dtype=17 | T:5x7 T:
DequantizeLinear | | u:5x7 T: u:
DynamicQuantizeLinear | | f:5x7
MatMulInteger | | u:5x7 u:7x3
QLinearMatMul | | u:5x7 f: u: u:7x3 f: u: f: u:
ConvInteger | | u:1x2x4x4 u:2x2x3x3
QLinearConv | | u:1x2x4x4 f: u: u:2x2x3x3 f: u: f: u:
DFT | | T:1x6x1
STFT | | T:1x8x1 s:=2 T:4
HannWindow HammingWindow BlackmanWindow | | s:=7
HannWindow BlackmanWindow | output_datatype=10 periodic=0 | s:=7
HannWindow HammingWindow BlackmanWindow | periodic=0 | s:=1
BlackmanWindow | output_datatype=6 | s:=6
SoftmaxCrossEntropyLoss | | T:3x4 i:3
NegativeLogLikelihoodLoss | | T:3x4 i:3
Range | | T: T: T:
Dropout | | T:5x7
NonMaxSuppression | | F:1x9x4 F:1x1x9 s:=9 h:
NonMaxSuppression | center_point_box=1 | F:1x9x4 F:1x1x9 s:=9 h:
com.microsoft.SkipLayerNormalization@1 | | T:5x7 T:5x7 T:7 T:7 T:7
com.microsoft.SkipSimplifiedLayerNormalization@1 | epsilon=0.5 | T:5x7 T:5x7 T:7 T:7
SimplifiedLayerNormalization | | T:5x7 T:7
com.microsoft.FusedMatMul@1 | alpha=0.5 transB=1 | T:5x7 T:3x7
com.microsoft.FusedMatMul@1 | transBatchA=1 | T:2x3x4 T:3x4x5
com.microsoft.Gelu@1 com.microsoft.FastGelu@1 com.microsoft.QuickGelu@1 | | T:5x7
com.microsoft.BiasGelu@1 com.microsoft.FastGelu@1 | | T:5x7 T:7
com.microsoft.MatMulNBits@1 | K=20 N=3 bits=4 block_size=16 | T:2x20 u:3x2x8 T:3x2 u:3x1 - T:3
com.microsoft.MatMulNBits@1 | K=20 N=3 bits=2 block_size=16 | T:1x20 u:3x2x4 T:3x2
com.microsoft.GatherBlockQuantized@1 | block_size=16 | u:3x10 i:2 T:3x2 u:3x1
com.microsoft.RotaryEmbedding@1 | | T:1x3x8 i:1x3 T:3x2 T:3x2
com.microsoft.GroupQueryAttention@1 | num_heads=2 kv_num_heads=1 do_rotary=1 | T:1x3x8 T:1x3x4 T:1x3x4 - - n:1=2 n:1=3 T:3x2 T:3x2
com.microsoft.GroupQueryAttention@1 | num_heads=2 kv_num_heads=1 softcap=2.0 smooth_softmax=1 | T:1x3x16 - - T:1x1x2x4 T:1x1x2x4 n:1=4 n:1=5
com.microsoft.QLinearAdd@1 com.microsoft.QLinearMul@1 | | u:5x7 h: u: u:7 h: u: h: u:
com.microsoft.QLinearSigmoid@1 com.microsoft.QLinearLeakyRelu@1 | | u:5x7 h: u: h: u:
com.microsoft.QLinearSoftmax@1 | opset=13 | u:5x7 h: u: h: u:
com.microsoft.QLinearWhere@1 | | b:5x7 u:5x7 h: u: u:7 h: u: h: u:
com.microsoft.QLinearConcat@1 | axis=0 | h: u: u:5x7 h: u: u:2x7 h: u:
com.microsoft.QLinearGlobalAveragePool@1 | | u:1x2x3x3 h: u: h: u:
com.microsoft.QLinearAveragePool@1 | kernel_shape=[2,2] | u:1x2x3x3 h: u: h: u:
com.microsoft.QGemm@1 | | u:5x7 f: u: u:7x3 f: u:
ai.onnx.ml.Scaler@5 | offset=[0.5] scale=[2.0] | T:5x7
ai.onnx.ml.Normalizer@5 | norm=L2 | T:5x7
ai.onnx.ml.Binarizer@5 | threshold=0.5 | T:5x7
ai.onnx.ml.LinearRegressor@5 | targets=2 post_transform=LOGISTIC coefficients=[0.5,-0.25,0.125,1.5,-2.0,0.75,0.1,0.3,-0.6,0.9,-1.2,0.2,0.7,-0.4] intercepts=[0.25,-0.5] | T:5x7
ai.onnx.ml.LinearRegressor@5 | targets=2 post_transform=SOFTMAX coefficients=[0.5,-0.25,0.125,1.5,-2.0,0.75,0.1,0.3,-0.6,0.9,-1.2,0.2,0.7,-0.4] intercepts=[0.25,-0.5] | T:5x7
ai.onnx.ml.LinearRegressor@5 | targets=2 post_transform=SOFTMAX_ZERO coefficients=[0.5,-0.25,0.125,1.5,-2.0,0.75,0.1,0.3,-0.6,0.9,-1.2,0.2,0.7,-0.4] intercepts=[0.25,-0.5] | T:5x7
ai.onnx.ml.LinearRegressor@5 | targets=2 post_transform=PROBIT coefficients=[0.05,-0.02,0.01,0.03,-0.02,0.07,0.01,0.03,-0.06,0.01,-0.02,0.02,0.07,-0.04] intercepts=[0.25,0.5] | T:5x7
ai.onnx.ml.SVMRegressor@5 | kernel_type=LINEAR kernel_params=[0.5,0.25,2.5] n_supports=2 support_vectors=[0.5,-0.25,0.125,1.5,-2.0,0.75,0.1,0.3,-0.6,0.9,-1.2,0.2,0.7,-0.4] coefficients=[0.75,-1.25] rho=[0.5] | T:5x7
ai.onnx.ml.SVMRegressor@5 | kernel_type=POLY kernel_params=[0.5,0.25,2.5] n_supports=2 support_vectors=[0.5,-0.25,0.125,1.5,-2.0,0.75,0.1,0.3,-0.6,0.9,-1.2,0.2,0.7,-0.4] coefficients=[0.75,-1.25] rho=[0.5] | T:5x7
ai.onnx.ml.SVMRegressor@5 | kernel_type=RBF kernel_params=[0.5,0.25,2.5] n_supports=2 support_vectors=[0.5,-0.25,0.125,1.5,-2.0,0.75,0.1,0.3,-0.6,0.9,-1.2,0.2,0.7,-0.4] coefficients=[0.75,-1.25] rho=[0.5] | T:5x7
ai.onnx.ml.SVMRegressor@5 | kernel_type=SIGMOID kernel_params=[0.5,0.25,2.5] n_supports=2 support_vectors=[0.5,-0.25,0.125,1.5,-2.0,0.75,0.1,0.3,-0.6,0.9,-1.2,0.2,0.7,-0.4] coefficients=[0.75,-1.25] rho=[0.5] | T:5x7
ai.onnx.ml.FeatureVectorizer@5 | inputdimensions=[7,3] | T:5x7 T:5x7
";

/// The float types, with the columns of the table.
pub const TYPES: [DataType; 4] =
    [DataType::Float, DataType::Double, DataType::Float16, DataType::Bfloat16];

/// Which numbers the floats have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Between -2 and 2.
    Plain,
    /// NaNs with any bits, infinities, zeros and subnormal numbers too.
    Special,
}

/// One node: an operator with its domain and version, attributes, and inputs.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub op: String,
    pub domain: String,
    pub version: i64,
    pub attributes: Vec<AttributeProto>,
    pub inputs: Vec<String>,
}

pub fn cases() -> Vec<Case> {
    CASES.trim().lines().flat_map(of_line).collect()
}

fn of_line(line: &str) -> Vec<Case> {
    let [ops, attributes, inputs] = line.split('|').collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    let of_op = |op: &str| {
        let (name, version) = op.split_once('@').unwrap_or((op, "26"));
        let (domain, own) = name.rsplit_once('.').unwrap_or(("", name));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let all = [words(attributes), words(inputs)].concat().join(" ");
        Case {
            name: format!("{op} {all}"),
            op: own.to_owned(),
            domain: domain.to_owned(),
            version: version.parse().unwrap(),
            attributes: attributes.split_whitespace().map(attribute).collect(),
            inputs: words(inputs),
        }
    };
    ops.split_whitespace().map(of_op).collect()
}

fn attribute(text: &str) -> AttributeProto {
    let (name, value) = text.split_once('=').unwrap();
    if let Some(list) = value.strip_prefix('[').and_then(|list| list.strip_suffix(']')) {
        let all: Vec<&str> = list.split(',').collect();
        return match all.iter().map(|n| n.parse().ok()).collect::<Option<Vec<i64>>>() {
            Some(ints) => AttributeProto::ints(name, ints),
            None => {
                let floats = all.iter().map(|n| n.parse().unwrap());
                AttributeProto::floats(name, floats.collect::<Vec<f32>>())
            }
        };
    }
    match (value.parse(), value.parse()) {
        (Ok(int), _) => AttributeProto::int(name, int),
        (_, Ok(float)) => AttributeProto::float(name, float),
        _ => AttributeProto::string(name, value),
    }
}

impl Case {
    /// The inputs, with floats of `dtype`; `None` where one is left out.
    pub fn inputs(&self, dtype: DataType, fill: Fill) -> Vec<Option<Value>> {
        let input = |(i, text): (usize, &String)| {
            if text == "-" {
                return None;
            }
            let (kind, rest) = text.split_once(':').unwrap();
            let (shape, value) = rest.split_once('=').unwrap_or((rest, "0"));
            let dims: Vec<i64> =
                shape.split('x').filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect();
            let count = usize::try_from(dims.iter().product::<i64>()).unwrap();
            let seed = u32::try_from(i * 31).unwrap();
            Some(match kind {
                "T" => floats(dtype, dims, count, seed, fill),
                "F" => floats(DataType::Float, dims, count, seed, fill),
                "f" => floats(DataType::Float, dims, count, seed, Fill::Plain),
                "h" => values(dims, count, |_| 0.5_f32),
                "r" => Value::from_elements(dims, &[0.0_f32, 0.5, 0.5, 2.5, 2.5]).unwrap(),
                "g" => Value::from_elements(dims, &[1.0_f32, 1.0, 1.5, 2.0]).unwrap(),
                "u" => values(dims, count, |i| u8::try_from((i * 37 + i * i) % 251).unwrap()),
                "i" => values(dims, count, |i| i64::try_from(i % 3).unwrap()),
                "s" => values(dims, count, |_| value.parse::<i64>().unwrap()),
                "n" => values(dims, count, |_| value.parse::<i32>().unwrap()),
                "b" => values(dims, count, |i| i % 3 != 1),
                other => panic!("{other}"),
            })
        };
        self.inputs.iter().enumerate().map(input).collect()
    }

    /// The outputs of the node, with `more` attributes.
    pub fn run(
        &self,
        profile: Profile,
        inputs: &[Option<Value>],
        more: &[AttributeProto],
    ) -> Result<Vec<Value>> {
        let names: Vec<String> = inputs
            .iter()
            .enumerate()
            .map(|(i, input)| input.as_ref().map_or_else(String::new, |_| format!("x{i}")))
            .collect();
        let outputs = match &*self.op {
            "TopK" => &["y", "y1"][..],
            "DynamicQuantizeLinear" => &["y", "y1", "y2"],
            _ => &["y"],
        };
        let inputs_of = names.iter().map(String::as_str);
        let mut node = NodeProto::new(&*self.op, inputs_of, outputs.iter().copied());
        node.domain = Some(self.domain.as_str().into());
        node.attribute = [&self.attributes, more].concat();
        let mut graph = GraphProto::new("g");
        for (name, value) in names.iter().zip(inputs) {
            let Some(value) = value else { continue };
            let tensor = value.tensor().unwrap();
            let dims = tensor.shape().into_iter().map(|dim| i64::try_from(dim).unwrap().into());
            let dims: Vec<_> = dims.collect();
            graph.input.push(ValueInfoProto::tensor_with(name.as_str(), tensor.dtype(), dims));
        }
        let mut output = ValueInfoProto::default();
        output.name = Some("y".into());
        graph.output.push(output);
        graph.node = vec![node];
        let mut model = ModelProto::new(graph);
        let mut versions = vec![OperatorSetIdProto::new(&*self.domain, self.version)];
        if !self.domain.is_empty() {
            versions.push(OperatorSetIdProto::new("", 26));
        }
        model.opset_import = versions;
        let program = Program::new(&Container::new(model), ProgramOptions::new())?;
        let mut machine = Machine::new(program, Registry::of(profile), RunLimits::new());
        for (name, value) in names.iter().zip(inputs) {
            value.iter().try_for_each(|value| machine.bind(name, value.clone()))?;
        }
        machine.run()?;
        Ok(vec![machine.value("y")?])
    }
}

fn values<T: onnx_container::Element>(
    dims: Vec<i64>,
    count: usize,
    of: impl Fn(usize) -> T,
) -> Value {
    Value::from_elements(dims, &(0..count).map(of).collect::<Vec<_>>()).unwrap()
}

/// The bits of numbers that are no plain ones, of FLOAT, DOUBLE, FLOAT16 and BFLOAT16.
const SPECIAL: [[u64; 4]; 9] = [
    [0xffc1_2345, 0xfff8_1234_5678_9abc, 0xfe12, 0xffd1],
    [0x7f80_0000, 0x7ff0 << 48, 0x7c00, 0x7f80],
    [0x8000_0000, 1 << 63, 0x8000, 0x8000],
    [0xff80_0000, 0xfff0 << 48, 0xfc00, 0xff80],
    [0x7fa0_0001, (0x7ff << 52) | 7, 0x7d01, 0x7fa1],
    [0, 0, 0, 0],
    [0x0000_0123, 0x123, 0x0123, 0x0023],
    [0x7f7f_ffff, (0x7ff0 << 48) - 1, 0x7bff, 0x7f7f],
    [0x3f80_0800, (0x3ff << 52) | (1 << 41) | 1, 0x3c01, 0x3f81],
];

fn floats(dtype: DataType, dims: Vec<i64>, count: usize, seed: u32, fill: Fill) -> Value {
    let column = TYPES.iter().position(|one| *one == dtype).unwrap();
    let mut bytes = Vec::new();
    for i in 0..u32::try_from(count).unwrap() {
        let random = (i + seed + 1).wrapping_mul(2_654_435_761) >> 8;
        let plain = f64::from(random) / f64::from(1 << 22) - 2.0;
        let special = SPECIAL.iter().cycle().nth((i + seed) as usize / 2).unwrap()[column];
        let bits = match (fill == Fill::Special && (i + seed).is_multiple_of(2), dtype) {
            (true, _) => special,
            (_, DataType::Float) => u64::from((plain as f32).to_bits()),
            (_, DataType::Double) => plain.to_bits(),
            (_, DataType::Float16) => u64::from(f16::from_f32(plain as f32).to_bits()),
            _ => u64::from(bf16::from_f32(plain as f32).to_bits()),
        };
        let width = usize::from(dtype.bit_width().unwrap() / 8);
        bytes.extend_from_slice(&bits.to_le_bytes()[..width]);
    }
    Value::Tensor(Tensor::new(dtype, dims, Buffer::from(bytes)).unwrap())
}
