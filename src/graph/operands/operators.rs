//! Which operands of each operator onnxruntime reads while it builds a session, as measured.

/// The input positions of `op_type` (of the default domain) that onnxruntime was measured to refuse
/// when they are external.
pub(super) fn required_inputs(op_type: &[u8]) -> &'static [usize] {
    match op_type {
        b"Reshape" | b"Expand" | b"Tile" | b"Squeeze" | b"Unsqueeze" | b"Split" | b"TopK"
        | b"SplitToSequence" | b"CenterCropPad" | b"AffineGrid" | b"Upsample" | b"OneHot"
        | b"ReduceL1" | b"ReduceL2" | b"ReduceLogSum" | b"ReduceLogSumExp" | b"ReduceMax"
        | b"ReduceMean" | b"ReduceMin" | b"ReduceProd" | b"ReduceSum" | b"ReduceSumSquare"
        | b"STFT" => &[1],
        b"ConstantOfShape" | b"BlackmanWindow" | b"HammingWindow" | b"HannWindow" | b"If" => &[0],
        b"Pad" => &[1, 3],
        b"Col2Im" => &[1, 2],
        b"DFT" => &[2],
        b"Resize" => &[2, 3],
        _ => &[],
    }
}

/// The input positions whose values decide an output's shape by the specification, but which
/// onnxruntime does not require.
pub(super) fn inferred_inputs(op_type: &[u8]) -> &'static [usize] {
    match op_type {
        b"DFT" | b"Resize" => &[1],
        b"MaxUnpool" => &[2],
        b"MelWeightMatrix" => &[0, 1],
        b"Range" => &[0, 1, 2],
        b"Slice" => &[1, 2, 3, 4],
        b"STFT" => &[3],
        _ => &[],
    }
}

/// Operators that readers evaluate while they infer shapes.
pub(super) const FOLDED: &[&[u8]] = &[
    b"Abs",
    b"Add",
    b"And",
    b"Cast",
    b"CastLike",
    b"Ceil",
    b"Concat",
    b"ConstantOfShape",
    b"Div",
    b"Equal",
    b"Expand",
    b"Flatten",
    b"Floor",
    b"Gather",
    b"GatherElements",
    b"GatherND",
    b"Greater",
    b"Identity",
    b"Less",
    b"Max",
    b"Min",
    b"Mod",
    b"Mul",
    b"Neg",
    b"Not",
    b"Or",
    b"Range",
    b"ReduceMax",
    b"ReduceMin",
    b"ReduceProd",
    b"ReduceSum",
    b"Reshape",
    b"Round",
    b"ScatterElements",
    b"ScatterND",
    b"Sign",
    b"Slice",
    b"Split",
    b"Sqrt",
    b"Squeeze",
    b"Sub",
    b"Tile",
    b"Transpose",
    b"Unsqueeze",
    b"Where",
];

/// Operators of the default domain, up to onnx 1.23, that were measured to read no other operand
/// than those of [`required_inputs`] and [`inferred_inputs`] while a session is built. Loop, Scan
/// and SequenceMap were not measured.
pub(super) const MEASURED: &str = "
Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh Attention AveragePool
BatchNormalization Bernoulli BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
BlackmanWindow Cast CastLike CausalConvWithState Ceil Celu CenterCropPad Clip Col2Im Compress
Concat ConcatFromSequence Constant ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh
CumProd CumSum DFT DeformConv DepthToSpace DequantizeLinear Det Div Dropout
DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather
GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalLpPool GlobalMaxPool Greater
GreaterOrEqual GridSample GroupNormalization HammingWindow HannWindow HardSigmoid HardSwish
Hardmax Identity If ImageDecoder InstanceNormalization IsInf IsNaN LRN LSTM LayerNormalization
LeakyRelu Less LessOrEqual LinearAttention Log LogSoftmax LpNormalization LpPool MatMul
MatMulInteger Max MaxPool MaxRoiPool MaxUnpool Mean MeanVarianceNormalization MelWeightMatrix
Min Mish Mod Mul Multinomial Neg NegativeLogLikelihoodLoss NonMaxSuppression NonZero Not OneHot
Optional OptionalGetElement OptionalHasElement Or PRelu Pad Pow QLinearConv QLinearMatMul
QuantizeLinear RMSNormalization RNN RandomNormal RandomNormalLike RandomUniform
RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare RegexFullMatch Relu Reshape Resize
ReverseSequence RoiAlign RotaryEmbedding Round STFT Scatter ScatterElements ScatterND Selu
SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss
Softplus Softsign SpaceToDepth Split SplitToSequence Sqrt Squeeze StringConcat StringNormalizer
StringSplit Sub Sum SwiGLU Swish Tan Tanh TensorScatter TfIdfVectorizer ThresholdedRelu Tile
TopK Transpose Trilu Unique Unsqueeze Upsample Where Xor
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folded_list_is_sorted() {
        assert!(FOLDED.is_sorted());
    }
}
