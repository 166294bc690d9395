"""Deviations that are meant: each with the reason, and how a difference is recognised as it."""

import re

from traits import (REDUCED, VIEWS, all_of, all_zero, any_of, at_nan, beyond_numbers, cancels, flags, flags_differ,
                    has_empty, has_infinite, has_nan, is_constant, is_empty, is_nothing, left_by_failure, nearly,
                    overflows, programs_with, reads_itself, same_numbers, statement_with, their_nan, their_zeros,
                    without_gradients, zeros_or_nothing)


class Known:
    """kinds: of differences; call: of the statement (regular expression, ANY where it may be all); ours, theirs: of
    the two sides' texts; test: a function of the difference for what these cannot say."""

    def __init__(self, reason, kinds, call, ours="", theirs="", test=None):
        self.reason, self.kinds, self.test = reason, kinds.split(), test
        self.call = re.compile(f"^({call})$" if call else "")
        self.ours, self.theirs = re.compile(ours), re.compile(theirs)
        self.count = 0

    def matches(self, difference):
        return (difference.kind in self.kinds and self.call.search(difference.call) and
                self.ours.search(str(difference.ours)) and self.theirs.search(str(difference.theirs)) and
                (self.test is None or self.test(difference)))


ANY = ""
# What is one formula in PyTorch and several ops here, or the other way round.
MANY_STEPS = (r"mish|cosine_similarity|Norm|_norm\(|logsigmoid|cross_entropy|BCE|CrossEntropy|lerp|Bilinear|pow|\^|"
              r"[cC]onv|scaled_dot|Multihead|Transformer|std|var")
FINE = r"^\.$"
MODULE = r"m\d"  # the call of a module
BACKWARD = r"backward|autograd\.grad"
COMPARED = r":(eq|ne|lt|le|gt|ge|logical_\w+)_\("
UNARY_LEAF = r"a (view of a )?leaf that requires grad cannot be changed in place"


def refused(reason, call, ours, test=None):
    """What fails here and runs in PyTorch."""
    return Known(reason, "error", call, ours=ours, theirs=FINE, test=test)


def allowed(reason, call, theirs, test=None):
    """What runs here and fails in PyTorch."""
    return Known(reason, "error", call, ours=FINE, theirs=theirs, test=test)


CALLS = [
    # More forms.
    allowed("a reduction takes its options in any combination, without a dim, too", REDUCED,
            "^TypeError: .*(invalid combination|missing 1 required|positional arguments)"),
    allowed("numbers stand for tensors", r"(logical_(and|or|xor)|maximum|minimum|clamp)_?",
            "^TypeError: .*(must be Tensor, not (int|float|bool)|invalid combination)"),
    allowed("bool rounds to itself, has a sign, is ordered, summed and counted",
            r"(abs|floor|ceil|round|trunc)_?|argmax|argmin|topk|cumsum|linspace|arange|sort|argsort",
            "(not implemented for|does not support) '?[Bb]ool"),
    allowed("a table of one size and a number mean the same", r"F\.(adaptive_avg_pool2d|layer_norm)",
            "output_size must be|'normalized_shape' .* must be tuple of ints, not int"),
    allowed("one result has one name", ANY, "iteration over a 0-d tensor"),
    allowed("0-dim tensors have a dim 0 (and -1) wherever a dim is given, in PyTorch almost everywhere",
            "repeat_interleave|take_along_dim", "tensor has no dimensions|range of \\[-1, 0\\], but got 1"),
    allowed("the value of an index write is converted, as that of a slice is", "ref|literal",
            "Index put requires the source"),
    allowed("a fraction becomes an integer by rounding towards zero",
            "float|int|full|(index_fill|masked_fill|scatter)_?",
            "value cannot be converted to type"),
    allowed("a small negative number wraps around in uint8, as it does in full", r"F\.pad|ref",
            "value cannot be converted to type uint8_t"),
    allowed("what overlaps is copied first", r"\w+_|ref|literal",
            "of the input tensor and the written-to tensor refer"),
    allowed("a norm over any dims is that of the vector of all", "norm", "matrix_norm: dim must be a 2-tuple"),
    allowed("the norm of nothing is 0 for every p", r"norm|nn.utils.clip_grad_norm_|F\.normalize",
            "on an empty tensor|the operation does not have an identity"),
    allowed("addcdiv of integers divides", "addcdiv_?", "Integer division with addcdiv"),
    allowed("a divisor of integers has a derivative", "backward", "result type Float can't be cast",
            programs_with("addcdiv")),
    allowed("fractions in alpha and beta of integer products promote", r"\w+_|addmm|baddbmm",
            "result type Float can't be cast|value cannot be converted to type",
            programs_with(r"(alpha|beta) = -?\d*\.\d")),
    allowed("F.pad may leave nothing", r"F\.pad", "is too small. Calculated output|must be >= 1"),
    allowed("sums and products into integers are constants", "prod|sum|cumsum", "Autograd not support dtype"),
    allowed("what is written into integers leaves them plain tensors", ANY, "Autograd not support dtype",
            programs_with(COMPARED + r"|\] = [xyv]\d")),
    allowed("what PyTorch cannot derive is a constant here", BACKWARD,
            r"derivative for (aten::|'_)"
            r"(floor_divide_?|remainder|fmod|unique\w*|bincount|bernoulli|hardsigmoid_backward)'? is"),
    allowed("an initialiser has nothing to do for a tensor without elements", r"nn\.init\.\w+",
            "float division by zero"),
    allowed("powers and weights of bool have a derivative", BACKWARD,
            "Subtraction, the `-` operator, with (a|two) bool", programs_with(r"pow|\^|lerp")),
    allowed("nll_loss has the gradient of any layout", BACKWARD, "grad_input must be contiguous",
            programs_with("nll_loss|NLLLoss|cross_entropy|CrossEntropy")),
    allowed("lerp takes weights of any dtype", "lerp_?", "expected dtype .* for `weight`"),
    allowed("batch_norm with statistics of its own needs none", r"F\.batch_norm",
            "missing 2 required positional arguments: 'running_mean'"),
    allowed("max and min take another tensor under the name dim, too", "max|min",
            "Dimension out of range|'dim' .*must be", statement_with(r"dim = [a-z]\d|m(ax|in)\(([a-z]\d, )?[a-z]\d,")),
    allowed("attention has derivatives of every order", BACKWARD,
            "flash_attention_for_cpu_backward is not implemented"),
    allowed("binary_cross_entropy has the gradient of its weights, too",
            r"F\.binary_cross_entropy\w*|m\d", "not differentiable with respect to argument"),
    allowed("a group of one value has the norm 0", r"F\.group_norm|m\d", "more than 1 value per channel",
            programs_with("group_norm|GroupNorm")),
    allowed("groups of no pixels are empty", r"F\.group_norm|m\d", "Expected HxW to be greater than 0"),
    allowed("take_along_dim of all elements takes any layout", "take_along_dim", "view size is not compatible"),
    allowed("a weight may widen a loss", r"F\.binary_cross_entropy\w*|m\d",
            "doesn't match the broadcast shape"),
    allowed("a plane without channels is empty, too", r"F\.(max|avg)_pool\dd|m\d",
            r"Expected \dD or \dD", has_empty),
    allowed("a leaf taken out of the graph by detach_ no longer guards its views", ANY, "a view of a leaf Variable",
            programs_with("detach_")),
    allowed("detach_ takes views, which then cannot be written", "detach_", "Can't detach views in-place"),
    allowed("views of split and unbind stay usable after a write into their base; PyTorch gives them up", ANY,
            "is a view and (its base or|is being)|multiple views"),
    allowed("what a gradient does not need is not saved, and may be written", BACKWARD,
            "modified by an inplace operation|through the graph a second time"),
    # Stricter.
    refused("in-place logicals check the leaf as every op does; PyTorch's do not", "logical_(and|or|xor|not)_",
            UNARY_LEAF),
    refused("in-place logicals check views made under no_grad as every op does; PyTorch's do not",
            "logical_(and|or|xor|not)_", "a view made under no_grad, or detached"),
    refused("the implicit dim of softmax, deprecated in PyTorch, is an error", r"F\.(log_)?softmax",
            r"\(dim\) is missing"),
    refused("channel-wise dropout of inputs without channels, deprecated in PyTorch, is an error",
            r"F\.dropout2d|m\d", "dropout2d: expected an input"),
    refused("a write into an expanded tensor is refused always; PyTorch lets some ops do it", ANY,
            "cannot write in place into an expanded tensor"),
    refused("an op that writes by index does not read what it writes", r"masked_scatter_|index_\w+_|scatter\w*_|ref",
            "shares memory with .* written"),
    refused("no products of bool", "matmul|bmm|mm|mv|dot|baddbmm|addmm|F.linear", "bool has no product"),
    refused("convolutions and poolings of integers", r"F\.(conv|avg_pool|max_pool|adaptive_avg_pool)\w*",
            "expected a floating input, got u?int"),
    refused("layers and dropout of integers", r"F\.(linear|dropout\w*|cosine_similarity)",
            "expected a floating input, got (u?int|bool)"),
    refused("PyTorch asks nothing of an empty tensor's dtype",
            r"(F\.)?(log_softmax|softmax|\w+_pool[12]d|(batch|layer|group)_norm|normalize|linear)|norm|"
            "normal_|exponential_|uniform_|bernoulli|randn?(_like)?",
            "expected a floating (input|dtype)", has_empty),
    refused("PyTorch asks nothing of an empty input's statistics, dim and shape",
            r"roll|cat|F\.(batch_norm|\w*pool[12]d|cross_entropy|scaled_dot_product_attention)|m\d",
            r"expected running_mean|dim -?\d is out of range|expected input \(N, C|class probabilities|"
            r"more than 1 value per channel|output_padding must be|dropout: expected p", has_empty),
    refused("bounds that the dtype cannot hold", r"F\.(hardtanh|relu6)", "outside the range of uint8"),
    refused("adaptive pooling checks the number of dims; PyTorch takes one too few", r"F\.adaptive_avg_pool2d",
            r"expected input \(N, C, H, W\) or \(C, H, W\)"),
    refused("sizes of no element are refused where they are a mistake in a model",
            r"F\.(adaptive_avg_pool[12]d|conv_transpose[12]d)|m\d",
            "has no size|output_size: expected at least 1|has empty planes"),
    refused("F.conv1d and F.conv2d take their padding in numbers; nn.Conv1d and nn.Conv2d know \"same\"",
            r"F\.conv[12]d", "padding.*: expected|expected an integer, got string"),
    refused("convolutions without channels", r"F\.conv\w*", "does not fit weight .*, 0,"),
    refused("multinomial without replacement refuses to draw weights of 0", "multinomial",
            "weights above 0, fewer than"),
    refused("take_along_dim refuses an index out of range, which PyTorch wraps", "take_along_dim",
            "gather: index .* is outside"),
    refused("take_along_dim keeps the index itself, PyTorch an expanded copy", BACKWARD,
            "gather: argument 3 .* was changed in place"),
    refused("a label_smoothing is a share", r"F\.cross_entropy", "label_smoothing: expected 0..1"),
    refused("keys and values of one length", r"F\.scaled_dot_product_attention", "expected query|attn_mask: shapes"),
    refused("an attn_mask of another dtype", r"F\.scaled_dot_product_attention", "expected attn_mask bool or"),
    refused("attention over integers", r"F\.scaled_dot_product_attention", "expected a floating query", has_empty),

    refused("one sample has a 0-dim target", r"F\.(nll_loss|cross_entropy)|m\d", r"target \(1,\) does not fit input"),
    refused("an index out of range is refused beside nothing, too", r"index_\w+|gather|scatter\w*", "is outside",
            has_empty),
    refused("a weight of one dim has no bias", r"F\.linear", r"does not fit weight \(\d+,\)"),
    refused("lerp of integers", "lerp_?", "expected a floating input"),
    refused("a mask has dims", "ref|index", "a mask of 0 dims cannot index"),
    refused("attention keeps keys and values for any gradient", BACKWARD,
            "of matmul: argument . .* was changed in place", programs_with("scaled_dot_product")),
    refused("cross_entropy has one dtype", r"F\.cross_entropy|m\d", r"expected weight \w+ of"),
    refused("the kernel of a convolution has as many sizes as dims", MODULE, "expected a number or a table of"),
    refused("a weight of lerp is kept as a tensor, also where it is a number", BACKWARD,
            "backward of lerp: the graph was already used"),
    refused("a view that was made anew after a write into its base may be gone through once", BACKWARD,
            "backward of (as_strided|copy_slices): the graph was already used"),
    refused("a view that was made anew after a write into its base is the result of an op", "requires_grad_",
            "the result of an op cannot be changed"),
    refused("a view made without gradients has no derivative", r"autograd\.grad|retain_grad", "does not require grad",
            programs_with("no_grad|requires_grad_|unique|bincount|floor_divide|bernoulli")),
]

HISTORIES = [
    Known("comparisons written in place: a constant here, in PyTorch a history of zeros", "flags missing kind", ANY,
          test=programs_with(COMPARED)),
    Known("integers never require a gradient", "flags", ANY,
          test=lambda d: d.theirs.dtype in ("int64", "int32", "uint8", "bool")),
    Known("a constant derivative has no history here", "flags", "autograd.grad",
          test=all_of(flags("-l", "r-"), is_constant)),
    Known("nothing where PyTorch hands on the zeros of a second derivative", "missing kind", BACKWARD,
          test=all_of(zeros_or_nothing, programs_with("create_graph"))),
    Known("attention over nothing hands on zeros; PyTorch nothing", "missing", BACKWARD,
          test=all_of(zeros_or_nothing, has_empty, programs_with("scaled_dot_product"))),
    Known("results whose gradient PyTorch refuses at backward have none here", "flags",
          "unique|floor_divide|bincount|bernoulli", test=flags("-l", "r-")),
    Known("views made without gradients, or before their base required them, have no gradient", "flags", VIEWS,
          test=all_of(flags("-l", "rl"), without_gradients)),
    Known("detach_ takes views", "flags", VIEWS, test=all_of(flags("-l", "r-"), programs_with("detach_"))),
    Known("PyTorch's derivatives of a reduction of one element are constants", "flags", "autograd.grad",
          test=all_of(flags("r-", "-l"), programs_with(r"(var|std|prod)\w*\("))),
    Known("dropout1d that does nothing returns its input; PyTorch's a view of two dims", "flags",
          r"F\.dropout1d|m\d", test=programs_with("ropout1d")),
    Known("what is empty may be the input itself", "alias flags", r"F\.dropout\w*|unique|m\d", test=is_empty),
    Known("a tensor behind max and min is the other operand, not a dim", "kind", "max|min", theirs=r"^int64\[\]",
          test=statement_with(r"m(ax|in)\([a-z]\d, (true|false|True|False)\)")),
    Known("views of split and unbind stay usable after a write into their base; PyTorch gives them up", "kind", VIEWS,
          theirs="is a view and (its base or|is being)|multiple views|view was created in no_grad mode"),
    Known("a norm with p = 0 has a gradient, of zeros", "missing kind", BACKWARD + "|norm",
          test=all_of(zeros_or_nothing, programs_with("norm.*p = 0"))),
    Known("nothing where PyTorch's addmm with beta = 0 hands zeros to its input", "missing kind flags", ANY,
          test=all_of(any_of(is_nothing, flags_differ), programs_with(r"add\w*mm.*beta = 0\b"))),
    Known("two inputs' gradients may be views of one tensor in PyTorch, as nothing there is written in place", "alias",
          BACKWARD, test=lambda d: d.name.endswith(".grad")),
    Known("results are row-major here; PyTorch keeps the order of the input's memory, and then has to copy", "alias",
          "contiguous|reshape|reshape_as|flatten|unflatten|m\\d"),
]

NUMBERS = [
    Known("integers of arange and linspace are cut off from exact steps; PyTorch's step is cut off", "value",
          "arange|linspace", ours="^u?int"),
    Known("random integers of more than 24 bits in float32", "value", "randint", ours="^float32"),
    Known("ties of topk may fall either way", "value", "topk", ours="^int64"),
    Known("fractions in alpha and beta of integer products promote; PyTorch cuts them off", "dtype", "addmm|baddbmm",
          test=statement_with(r"(alpha|beta) = -?\d*\.\d")),
    Known("bincount of nothing keeps the dtype of its weights", "dtype", "bincount", ours=r"\[\] *$|\[0+\.0"),
    Known("a weight of a wider dtype widens a loss", "dtype", r"F\.binary_cross_entropy.*|m\d"),
    Known("a 0-dim weight of lerp widens nothing", "dtype", "lerp_?"),
    Known("a number and a 0-dim tensor as bounds promote as an operand does", "dtype", "clamp_?"),
    Known("an integer is compared with a half as float32; PyTorch makes it a half, which may be infinite", "value",
          "(eq|ne|lt|le|gt|ge)_?", test=programs_with("float16")),
    Known("an integer counts as float32 beside a half; PyTorch makes it a half, which may be infinite", "value",
          r"(add|sub|mul|div|pow|maximum|minimum|addcmul|addcdiv)_?|[-+*/%^]", ours="float16",
          test=all_of(beyond_numbers, overflows)),
    Known("the mean of an infinite row is infinite, also beside its variance", "value", "(std|var)_mean",
          test=all_of(their_nan, has_infinite)),
    Known("gelu of infinity is infinity; in PyTorch's float32 it is nan", "value", r"F\.gelu|m\d",
          test=all_of(their_nan, programs_with("gelu|GELU"))),
    Known("a remainder of numbers whose quotient overflows", "value", "%|(remainder|fmod|floor_divide)_?|literal",
          test=all_of(their_nan, programs_with("%|remainder|fmod|floor_divide"))),
    Known("norms of numbers whose squares overflow", "value",
          r"F\.(normalize|pairwise_distance|cosine_similarity)|norm|nn.utils.clip_grad_norm_", test=all_of(beyond_numbers, overflows)),
    Known("numbers over norms that overflow", "value", r"F\.(cosine_similarity|normalize)", test=overflows),
    Known("a product into a half that leaves its range on its way", "value", "prod|cumprod", ours="^b?float16"),
    Known("operands of two dtypes meet in the wider one first", "value",
          r"F\.(cosine_similarity|binary_cross_entropy_with_logits)|m\d",
          test=all_of(nearly, programs_with("float64"), programs_with("float32|float16"))),
    Known("a row of equal numbers is normalised to 0 but for the rounding of its mean", "value", BACKWARD,
          test=all_of(their_zeros, programs_with("_norm|Norm|Transformer"), programs_with("expand|broadcast_to|full"))),
    Known("nans have no order among each other", "value", "unique", ours="^int64", test=has_nan),
    Known("a mean over weights of zero with label smoothing", "value", r"F\.cross_entropy|m\d",
          test=all_of(programs_with("label_smoothing"), beyond_numbers)),
    Known("PyTorch's hardsigmoid has the derivative 1/6 in float32", "value", BACKWARD,
          test=all_of(programs_with("[hH]ardsigmoid"), nearly)),
    Known("circular padding that also cuts; PyTorch leaves memory unwritten", "value", r"F\.pad|m\d|backward",
          test=programs_with("circular")),
    Known("normalisation keeps sums in float64, where PyTorch's float32 overflows or meets inf * 0", "value",
          r"m\d|F\.(layer|group|batch)_norm", test=all_of(their_nan, programs_with("_norm|Norm"))),
    Known("a masked position does not spread its nan", "value", r"F\.scaled_dot_product_attention|m\d",
          test=all_of(their_nan, programs_with("scaled_dot|Multihead|Transformer"))),
    Known("a convolution multiplies no zeros that it adds with nan or inf", "value", r"F\.conv.*|m\d",
          test=all_of(their_nan, programs_with("conv|Conv"))),
    Known("a write that reads a part of the same tensor copies it first", "value", ANY, test=reads_itself),
    Known("PyTorch's batch_norm puts the gradient of some layouts elsewhere", "value", BACKWARD,
          test=all_of(same_numbers, programs_with("batch_norm|BatchNorm"), programs_with("transpose"))),
    Known("a gradient that cancels but for units in the last place of its terms", "value", BACKWARD, test=cancels),
    Known("a logical written in place is a constant; PyTorch goes on with the old history", "value", BACKWARD,
          test=programs_with(r":logical_\w+_\(")),
    Known("second derivatives of numbers that overflow", "value", BACKWARD,
          test=all_of(beyond_numbers, programs_with("create_graph"), any_of(has_infinite, has_nan))),
    Known("quotients of halves that cancel in their gradient", "value", BACKWARD, ours="float16",
          test=programs_with("addcdiv")),
    Known("PyTorch multiplies out (x - mean) * scale, and loses what cancels", "value", r"F\.(batch|group)_norm|m\d",
          test=all_of(overflows, programs_with("(batch|group)_norm|(Batch|Group)Norm"))),
    Known("what fails changes nothing; PyTorch has written up to where it fails", "value", ANY,
          test=left_by_failure),
    Known("a reduction into a narrow dtype has a gradient of the input's precision", "value", BACKWARD,
          test=programs_with(r"(prod|sum|cumsum|mean)\(.*dtype")),
    Known("a sum in halves that cancels: here in float32", "value", "mean|sum|cumsum", ours="^b?float16",
          test=all_of(statement_with("dtype ="), cancels)),
    Known("a mean of numbers beyond its narrow dtype", "value", "mean|sum|prod|cumsum", ours="float16",
          test=all_of(statement_with("dtype ="), overflows)),
    Known("PyTorch's second derivative of abs is memory that nobody wrote", "value", "backward",
          test=all_of(lambda d: all_zero(d.ours), programs_with(r"abs|l1_loss|L1Loss|norm|distance"),
                      programs_with("create_graph"))),
    Known("the second derivative of softplus at its threshold", "value", "backward",
          test=all_of(programs_with("[sS]oftplus.*threshold"), programs_with("create_graph"))),
    Known("second derivatives of binary_cross_entropy at 0 and 1, which PyTorch's formula makes huge", "value",
          "backward", test=all_of(programs_with(r"binary_cross_entropy\(|BCELoss"), programs_with("create_graph"))),
    Known("the target of kl_div is a probability: no number comes of its logarithm at 0 and below", "value", BACKWARD,
          test=all_of(beyond_numbers, programs_with("kl_div|KLDiv"))),
    Known("the gradient of an element that is nan: PyTorch's own kernels give 0, 1 and nan", "value", BACKWARD,
          test=any_of(at_nan, all_of(has_nan, programs_with("[hH]ardtanh|relu6|ReLU6|elu|ELU|hardswish")))),
    Known("draws into a result whose memory PyTorch orders as its input's", "value", ANY,
          test=all_of(programs_with(r"(random|uniform|normal|exponential|bernoulli)_?\(|_like|ropout"),
                      programs_with(r"nonzero|transpose|permute|diagonal|swap|movedim|:t\("))),
    Known("where all is -infinity the gradient of logsumexp is 0", "value", BACKWARD,
          test=all_of(their_nan, programs_with("logsumexp"), has_infinite)),
    Known("PyTorch's addcdiv of integers goes through float32", "value", BACKWARD,
          test=all_of(nearly, programs_with("addcdiv"))),
    Known("max and min take another tensor under the name dim, too", "kind value shape dtype", "max|min",
          test=statement_with(r"dim = [a-z]\d|m(ax|in)\(([a-z]\d, )?[a-z]\d, (true|false)\)")),
    Known("the square root of -infinity is no number in a half either", "value", ANY, ours="float16",
          test=all_of(programs_with(r"pow_?\(.*-?0\.5|\^ -?0\.5"), has_infinite)),
    Known("the logarithm of a narrower base is taken in the exponent's dtype", "value", BACKWARD,
          test=all_of(nearly, programs_with(r"pow|\^"))),
    Known("PyTorch's gradient of addcmul multiplies in uint8", "value", BACKWARD,
          test=all_of(programs_with("addcmul"), programs_with("uint8"))),
    Known("a product times alpha = 0 is computed all the same", "value", "addmm|baddbmm",
          test=all_of(beyond_numbers, statement_with(r"alpha = 0\b"))),
    Known("what a half may round to 0", "value", "count_nonzero|nonzero|logical_not|eq|ne",
          test=programs_with(r'dtype = "b?float16"')),
    Known("a sample that is ignored spreads no nan", "value", BACKWARD,
          test=all_of(their_nan, programs_with("ignore_index"))),
    Known("the gradient of a largest or smallest that is nan is 0; PyTorch's is nan, or 1 where that nan is", "value",
          BACKWARD, test=all_of(programs_with(r"\b(max|min|amax|amin)\("), has_nan)),
    Known("a product with nan among its factors", "value", BACKWARD,
          test=all_of(beyond_numbers, programs_with(r"prod\("), has_nan)),
    Known("gradients that meet infinity on their way, through different formulas", "value", BACKWARD,
          test=all_of(beyond_numbers, any_of(has_infinite, has_nan), programs_with(MANY_STEPS))),
    Known("distances and norms of numbers whose squares overflow", "value", BACKWARD,
          test=all_of(programs_with(r"(pairwise_distance|cosine_similarity|normalize|norm_?)\("),
                      any_of(overflows, their_nan))),
    Known("a window of padding alone has no largest; PyTorch gives the gradient to some element", "value", BACKWARD,
          test=programs_with(r"max_pool.*dilation.*padding|max_pool.*padding.*dilation|MaxPool.*dilation")),
    Known("a pos_weight of uint8 wraps around in PyTorch, one of int64 goes through float32", "value",
          r"F\.binary_cross_entropy_with_logits|" + BACKWARD,
          test=all_of(programs_with("uint8|int64"), programs_with("pos_weight"))),
    Known("the least probability of binary_cross_entropy is 1e-12 in float32 in PyTorch", "value", BACKWARD,
          test=all_of(programs_with(r"binary_cross_entropy\(|BCELoss"), nearly)),
    Known("a power of an integer is not computed in half precision", "value", r"pow_?|\^", ours="float16"),
    Known("a sum of products that leaves float32 on its way", "value", "mm|bmm|mv|dot|matmul|addmm|baddbmm|F.linear",
          ours="^float(32|16)", test=all_of(beyond_numbers, overflows)),
]

KNOWN = CALLS + HISTORIES + NUMBERS


def known(difference):
    """The entry that a difference is an instance of, or None."""
    for entry in KNOWN:
        if entry.matches(difference):
            return entry
    return None
