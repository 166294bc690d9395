-- Public names of PyTorch, written by names.py.
return {
  version = "2.15.0",
  {"torch", [[
    Event Generator Size Stream abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint
    alias_copy all allclose amax amin aminmax angle any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh
    argmax argmin argsort argwhere as_strided as_strided_copy as_strided_scatter as_tensor asarray asin asinh atan
    atan2 atanh atleast_1d atleast_2d atleast_3d autocast baddbmm bartlett_window bernoulli bincount bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window block_diag bmm
    broadcast_shapes broadcast_tensors broadcast_to bucketize can_cast cartesian_prod cat cdist ceil chain_matmul
    cholesky_inverse cholesky_solve chunk clamp clamp_max clamp_min clip clone col_indices_copy column_stack
    combinations compile complex concat concatenate conj conj_physical copysign corrcoef cos cosh count_nonzero cov
    cross crow_indices_copy cummax cummin cumprod cumsum cumulative_trapezoid deg2rad dequantize det detach
    detach_copy device diag diag_embed diagflat diagonal diagonal_copy diagonal_scatter diff digamma dist div divide
    dot dsplit dstack dtype einsum empty empty_like empty_permuted empty_strided enable_grad eq equal erf erfc
    erfinv exp exp2 expand_copy expm1 eye fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fill
    finfo fix flatten flip fliplr flipud float_power floor floor_divide fmax fmin fmod fork frac frexp from_file
    from_numpy frombuffer full full_like gather gcd ge geqrf ger get_default_device get_default_dtype
    get_num_interop_threads get_num_threads get_rng_state gradient greater greater_equal gt hamming_window
    hann_window hash_tensor heaviside histc histogram histogramdd hsplit hspmm hstack hypot i0 igamma igammac iinfo
    imag index_add index_copy index_fill index_put index_reduce index_select indices_copy inference_mode
    initial_seed inner inverse is_complex is_conj is_floating_point is_grad_enabled is_inference
    is_inference_mode_enabled is_nonzero is_storage is_tensor isclose isfinite isin isinf isnan isneginf isposinf
    isreal istft kaiser_window kron kthvalue lcm ldexp le lerp less less_equal lgamma linspace load lobpcg log log10
    log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or logical_xor
    logit logspace logsumexp lt lu lu_solve lu_unpack manual_seed masked_fill masked_scatter masked_select matmul
    matrix_exp matrix_power max maximum mean median meshgrid min minimum mm mode moveaxis movedim msort mul
    multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow narrow_copy ne neg
    negative nextafter no_grad nonzero nonzero_static norm normal not_equal numel ones ones_like orgqr ormqr outer
    pca_lowrank permute permute_copy pinverse poisson polar polygamma positive pow prod promote_types quantile
    quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm quantized_max_pool1d
    quantized_max_pool2d rad2deg rand rand_like randint randint_like randn randn_like randperm range ravel real
    reciprocal relu remainder renorm repeat_interleave reshape resolve_conj resolve_neg result_type rms_norm roll
    rot90 round row_stack rsqrt rsub save scalar_tensor scatter scatter_add scatter_reduce searchsorted seed
    segment_reduce select select_copy select_scatter set_default_device set_default_dtype set_flush_denormal
    set_grad_enabled set_num_interop_threads set_num_threads set_printoptions set_rng_state sgn sigmoid sign signbit
    sin sinc sinh slice_copy slice_scatter slogdet smm softmax sort sparse_bsc_tensor sparse_bsr_tensor
    sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor split split_copy
    split_with_sizes_copy sqrt square squeeze squeeze_copy sspaddmm stack std std_mean stft sub subtract sum svd
    svd_lowrank swapaxes swapdims t t_copy take take_along_dim tan tanh tensor tensor_split tensordot tile topk
    trace transpose transpose_copy trapezoid trapz triangular_solve tril tril_indices triu triu_indices true_divide
    trunc unbind unbind_copy unflatten unfold_copy unique unique_consecutive unravel_index unsafe_chunk unsafe_split
    unsqueeze unsqueeze_copy use_deterministic_algorithms values_copy vander var var_mean vdot view_as_complex
    view_as_complex_copy view_as_real view_as_real_copy view_copy vmap vsplit vstack where xlogy zeros zeros_like]]},
  {"torch.Tensor", [[
    H T abs abs_ absolute absolute_ acos acos_ acosh acosh_ add add_ addbmm addbmm_ addcdiv addcdiv_ addcmul
    addcmul_ addmm addmm_ addmv addmv_ addr addr_ adjoint all allclose amax amin aminmax angle any apply_ arccos
    arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ argmax
    argmin argsort argwhere as_strided as_strided_ as_strided_scatter as_subclass asin asin_ asinh asinh_ atan atan2
    atan2_ atan_ atanh atanh_ backward baddbmm baddbmm_ bernoulli bernoulli_ bfloat16 bincount bitwise_and
    bitwise_and_ bitwise_left_shift bitwise_left_shift_ bitwise_not bitwise_not_ bitwise_or bitwise_or_
    bitwise_right_shift bitwise_right_shift_ bitwise_xor bitwise_xor_ bmm bool broadcast_to byte cauchy_
    ccol_indices cdouble ceil ceil_ cfloat chalf char cholesky cholesky_inverse cholesky_solve chunk clamp clamp_
    clamp_max clamp_max_ clamp_min clamp_min_ clip clip_ clone coalesce col_indices conj conj_physical
    conj_physical_ const_data_ptr contiguous copy_ copysign copysign_ corrcoef cos cos_ cosh cosh_ count_nonzero cov
    cpu cross crow_indices cuda cummax cummin cumprod cumprod_ cumsum cumsum_ data data_ptr deg2rad deg2rad_
    dense_dim dequantize det detach detach_ device diag diag_embed diagflat diagonal diagonal_scatter diff digamma
    digamma_ dim dim_order dist div div_ divide divide_ dot double dsplit dtype eig element_size eq eq_ equal erf
    erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_ expand expand_as expm1 expm1_ exponential_ fill_
    fill_diagonal_ fix fix_ flatten flip fliplr flipud float float_power float_power_ floor floor_ floor_divide
    floor_divide_ fmax fmin fmod fmod_ frac frac_ frexp gather gcd gcd_ ge ge_ geometric_ geqrf ger get_device grad
    grad_dtype grad_fn greater greater_ greater_equal greater_equal_ gt gt_ half hardshrink hash_tensor heaviside
    heaviside_ histc histogram hsplit hypot hypot_ i0 i0_ igamma igamma_ igammac igammac_ imag index index_add
    index_add_ index_copy index_copy_ index_fill index_fill_ index_put index_put_ index_reduce index_reduce_
    index_select indices inner int int_repr inverse ipu is_coalesced is_complex is_conj is_contiguous is_cpu is_cuda
    is_distributed is_floating_point is_inference is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_neg
    is_nested is_nonzero is_pinned is_quantized is_same_size is_set_to is_shared is_signed is_sparse is_sparse_csr
    is_vulkan is_xla is_xpu isclose isfinite isinf isnan isneginf isposinf isreal istft item itemsize kron kthvalue
    layout lcm lcm_ ldexp ldexp_ le le_ lerp lerp_ less less_ less_equal less_equal_ lgamma lgamma_ log log10 log10_
    log1p log1p_ log2 log2_ log_ log_normal_ log_softmax logaddexp logaddexp2 logcumsumexp logdet logical_and
    logical_and_ logical_not logical_not_ logical_or logical_or_ logical_xor logical_xor_ logit logit_ logsumexp
    long lstsq lt lt_ lu lu_solve mH mT map2_ map_ masked_fill masked_fill_ masked_scatter masked_scatter_
    masked_select matmul matrix_exp matrix_power max maximum mean median min minimum mm mode module_load moveaxis
    movedim msort mtia mul mul_ multinomial multiply multiply_ mv mvlgamma mvlgamma_ name nan_to_num nan_to_num_
    nanmean nanmedian nanquantile nansum narrow narrow_copy nbytes ndim ndimension ne ne_ neg neg_ negative
    negative_ nelement new new_empty new_empty_strided new_full new_ones new_tensor new_zeros nextafter nextafter_
    nonzero nonzero_static norm normal_ not_equal not_equal_ numel numpy orgqr ormqr outer output_nr permute
    pin_memory pinverse polygamma polygamma_ positive pow pow_ prelu prod put put_ q_per_channel_axis
    q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qr qscheme quantile rad2deg rad2deg_ random_
    ravel real reciprocal reciprocal_ record_stream register_hook register_post_accumulate_grad_hook reinforce relu
    relu_ remainder remainder_ renorm renorm_ repeat repeat_interleave requires_grad requires_grad_ reshape
    reshape_as resize resize_ resize_as resize_as_ resize_as_sparse_ resolve_conj resolve_neg retain_grad
    retains_grad roll rot90 round round_ row_indices rsqrt rsqrt_ scatter scatter_ scatter_add scatter_add_
    scatter_reduce scatter_reduce_ select select_scatter set_ sgn sgn_ shape share_memory_ short sigmoid sigmoid_
    sign sign_ signbit sin sin_ sinc sinc_ sinh sinh_ size slice_inverse slice_scatter slogdet smm softmax solve
    sort sparse_dim sparse_mask sparse_resize_ sparse_resize_and_clear_ split split_with_sizes sqrt sqrt_ square
    square_ squeeze squeeze_ sspaddmm std stft storage storage_offset storage_type stride sub sub_ subtract
    subtract_ sum sum_to_size svd swapaxes swapaxes_ swapdims swapdims_ symeig t t_ take take_along_dim tan tan_
    tanh tanh_ tensor_split tile to to_dense to_mkldnn to_padded_tensor to_sparse to_sparse_bsc to_sparse_bsr
    to_sparse_coo to_sparse_csc to_sparse_csr tolist topk trace transpose transpose_ triangular_solve tril tril_
    triu triu_ true_divide true_divide_ trunc trunc_ type type_as unbind unflatten unfold uniform_ unique
    unique_consecutive unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_ untyped_storage values
    var vdot view view_as volatile vsplit where xlogy xlogy_ xpu zero_]]},
  {"torch.linalg", [[
    LinAlgError cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv
    inv_ex ldl_factor ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp matrix_norm
    matrix_power matrix_rank matrix_sqrth multi_dot norm pinv polar qr slogdet solve solve_ex solve_triangular svd
    svdvals tensorinv tensorsolve vander vecdot vector_norm]]},
  {"torch.special", [[
    airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
    chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc
    gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l
    legendre_polynomial_p log1p log_ndtr log_softmax logit logsumexp modified_bessel_i0 modified_bessel_i1
    modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri polygamma psi round scaled_modified_bessel_k0
    scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
    shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sinc softmax spherical_bessel_j0 xlog1py xlogy
    zeta]]},
  {"torch.fft", [[
    fft fft2 fftfreq fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftfreq
    rfftn]]},
  {"torch.autograd", [[
    Function NestedIOFunction Variable backward detect_anomaly enable_grad enforce_grad_layout_policy grad gradcheck
    gradgradcheck inference_mode no_grad set_detect_anomaly set_grad_enabled set_multithreading_enabled variable]]},
  {"torch.nn", [[
    AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d
    AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss
    BatchNorm1d BatchNorm2d BatchNorm3d Bilinear Buffer CELU CTCLoss ChannelShuffle CircularPad1d CircularPad2d
    CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Container Conv1d Conv2d Conv3d ConvTranspose1d
    ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss CrossMapLRN2d DataParallel
    Dropout Dropout1d Dropout2d Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold
    FractionalMaxPool2d FractionalMaxPool3d GELU GLU GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink Hardsigmoid
    Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d InstanceNorm2d InstanceNorm3d KLDivLoss
    L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell LayerNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d
    LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d
    LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear LeakyReLU Linear LinearCrossEntropyLoss
    LinearCrossEntropyOptions LocalResponseNorm LogSigmoid LogSoftmax MSELoss MarginRankingLoss MaxPool1d MaxPool2d
    MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish Module ModuleDict ModuleList MultiLabelMarginLoss
    MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention NLLLoss NLLLoss2d PReLU PairwiseDistance Parameter
    ParameterDict ParameterList PixelShuffle PixelUnshuffle PoissonNLLLoss RMSNorm RNN RNNBase RNNCell RNNCellBase
    RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d
    ReplicationPad3d SELU Sequential SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin Softplus
    Softshrink Softsign SyncBatchNorm Tanh Tanhshrink Threshold Transformer TransformerDecoder
    TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer TripletMarginLoss
    TripletMarginWithDistanceLoss Unflatten Unfold UninitializedBuffer UninitializedParameter Upsample
    UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d]]},
  {"torch.nn.Module", [[
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches
    eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict
    modules mtia named_buffers named_children named_modules named_parameters parameters register_backward_hook
    register_buffer register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook
    register_module register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_
    set_extra_state set_submodule share_memory state_dict to to_empty train type xpu zero_grad]]},
  {"torch.nn.functional", [[
    ScalingType SwizzleType adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d
    adaptive_max_pool3d_with_indices affine_grid alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear
    binary_cross_entropy binary_cross_entropy_with_logits celu celu_ channel_shuffle conv1d conv2d conv3d conv_tbc
    conv_transpose1d conv_transpose2d conv_transpose3d cosine_embedding_loss cosine_similarity cross_entropy
    ctc_loss dropout dropout1d dropout2d dropout3d elu elu_ embedding embedding_bag feature_alpha_dropout fold
    fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
    fractional_max_pool3d_with_indices gaussian_nll_loss gelu glu grid_sample group_norm grouped_mm gumbel_softmax
    hardshrink hardsigmoid hardswish hardtanh hardtanh_ hinge_embedding_loss huber_loss instance_norm interpolate
    kl_div l1_loss layer_norm leaky_relu leaky_relu_ linear linear_cross_entropy local_response_norm log_softmax
    logsigmoid lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d
    max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mish mse_loss
    multi_head_attention_forward multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss
    native_channel_shuffle nll_loss normalize one_hot pad pairwise_distance pdist pixel_shuffle pixel_unshuffle
    poisson_nll_loss prelu relu relu6 relu_ rms_norm rrelu rrelu_ scaled_addmm scaled_addmm_
    scaled_dot_product_attention scaled_grouped_mm scaled_mm selu selu_ sigmoid silu smooth_l1_loss soft_margin_loss
    softmax softmin softplus softshrink softsign tanh tanhshrink threshold threshold_ triplet_margin_loss
    triplet_margin_with_distance_loss unfold upsample upsample_bilinear upsample_nearest]]},
  {"torch.nn.init", [[
    calculate_gain constant_ dirac_ eye_ kaiming_normal_ kaiming_uniform_ normal_ ones_ orthogonal_ sparse_
    trunc_normal_ uniform_ xavier_normal_ xavier_uniform_ zeros_]]},
  {"torch.nn.utils", [[
    clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ convert_conv2d_weight_memory_format
    convert_conv3d_weight_memory_format fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval
    fuse_linear_bn_weights get_total_norm parameters_to_vector remove_spectral_norm remove_weight_norm skip_init
    spectral_norm vector_to_parameters weight_norm]]},
  {"torch.nn.utils.rnn", [[
    PackedSequence invert_permutation pack_padded_sequence pack_sequence pad_packed_sequence pad_sequence
    unpack_sequence unpad_sequence]]},
  {"torch.nn.utils.parametrize", [[
    ParametrizationList cached is_parametrized register_parametrization remove_parametrizations
    transfer_parametrizations_and_params type_before_parametrizations]]},
  {"torch.nn.utils.parametrizations", [[
    orthogonal spectral_norm weight_norm]]},
  {"torch.optim", [[
    ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam Optimizer RAdam RMSprop Rprop SGD SparseAdam
    swap_in_optimizer_params_and_state]]},
  {"torch.optim.lr_scheduler", [[
    ChainedScheduler ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR ExponentialLR LRScheduler
    LambdaLR LinearLR MultiStepLR MultiplicativeLR OneCycleLR PolynomialLR ReduceLROnPlateau SequentialLR StepLR]]},
  {"torch.optim.swa_utils", [[
    AveragedModel SWALR get_ema_avg_fn get_ema_multi_avg_fn get_swa_avg_fn get_swa_multi_avg_fn update_bn]]},
  {"torch.distributed", [[
    AllToAllOptions AllreduceCoalescedOptions AllreduceOptions Backend BackendConfig BarrierOptions BroadcastOptions
    DebugLevel GatherOptions GroupMember GroupName P2POp PrefixStore ProcessGroup ProcessGroupGloo ProcessGroupNCCL
    ProcessGroupNCCL2 ProcessGroupNCCLLazy ReduceOp ReduceOptions ReduceScatterOptions ScatterOptions Store Work
    all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_gather_single all_reduce
    all_reduce_coalesced all_to_all all_to_all_single barrier batch_isend_irecv broadcast broadcast_object_list
    destroy_process_group gather gather_into_tensor gather_object gather_single get_backend get_backend_config
    get_backend_impl get_debug_level get_default_backend_for_device get_global_rank get_group_rank
    get_node_local_rank get_pg_count get_process_group_ranks get_rank get_world_size group init_process_group irecv
    is_available is_backend_available is_gloo_available is_initialized is_mpi_available is_nccl_available
    is_torchelastic_launched is_ucc_available is_xccl_available isend monitored_barrier new_group new_subgroups
    new_subgroups_by_enumeration record_comm recv recv_object_list reduce reduce_scatter reduce_scatter_single
    reduce_scatter_tensor scatter scatter_object_list send send_object_list set_timeout shrink_group split_group
    supports_complex]]},
  {"torch.utils.checkpoint", [[
    CheckpointError CheckpointFunction CheckpointPolicy DefaultDeviceType GraphExecGroup SelectiveCheckpointContext
    check_backward_validity checkpoint checkpoint_sequential create_selective_checkpoint_contexts detach_variable
    get_device_states noop_context_fn set_checkpoint_debug_enabled set_checkpoint_early_stop set_device_states]]},
  {"torch.utils.data", [[
    BatchSampler ChainDataset ConcatDataset DataChunk DataLoader Dataset DistributedSampler IterableDataset
    RandomSampler Sampler SequentialSampler StackDataset Subset SubsetRandomSampler TensorDataset
    WeightedRandomSampler argument_validation default_collate default_convert get_worker_info non_deterministic
    random_split runtime_validation runtime_validation_disabled]]},
}
