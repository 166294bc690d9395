--- The names of image models' weights in torchvision's and timm's files.
--
-- A scheme has a `mark`, a name that no other scheme has, and `rules`: {pattern, replacement, part, older}. The first
-- rule whose pattern a model's name matches (without the base model's prefix) has the name in files. With `part` the
-- model's tensor is that third of the one in files, which has the rows of queries, keys and values; `older` replaces a
-- text of the name in the files of older versions.
local C = require "accelhost._C"

local image_names = {}

-- ResNet: torchvision's names, which timm has too.
local layer = "^encoder%.stages%.(%d+)%.layers%.(%d+)%."

-- "layer" and a stage's number from 1, as far as the block's number.
local function stage_of(stage, block) return ("layer%d.%s."):format(stage + 1, block) end

image_names.resnet = {{
  mark = "conv1.weight",
  rules = {
    {"^embedder%.embedder%.convolution%.", "conv1."},
    {"^embedder%.embedder%.normalization%.", "bn1."},
    {layer .. "layer%.(%d+)%.convolution%.", function(stage, block, i)
      return ("%sconv%d."):format(stage_of(stage, block), i + 1)
    end},
    {layer .. "layer%.(%d+)%.normalization%.", function(stage, block, i)
      return ("%sbn%d."):format(stage_of(stage, block), i + 1)
    end},
    {layer .. "shortcut%.convolution%.", function(stage, block) return stage_of(stage, block) .. "downsample.0." end},
    {layer .. "shortcut%.normalization%.", function(stage, block) return stage_of(stage, block) .. "downsample.1." end},
    {"^classifier%.1%.", "fc."},
  },
}}

-- The rules of query, key and value, which are one tensor in files.
local function add_parts(rules, pattern, replacement)
  for part, name in ipairs {"query", "key", "value"} do
    rules[#rules + 1] = {pattern .. "attention%.attention%." .. name .. "%.", replacement, part}
  end
  return rules
end

local block = "^encoder%.layer%.(%d+)%."
local torchvision_block = "encoder.layers.encoder_layer_%1."

image_names.vit = {{
  mark = "conv_proj.weight",
  rules = add_parts({
    {"^embeddings%.cls_token$", "class_token"},
    {"^embeddings%.position_embeddings$", "encoder.pos_embedding"},
    {"^embeddings%.patch_embeddings%.projection%.", "conv_proj."},
    {block .. "attention%.output%.dense%.", torchvision_block .. "self_attention.out_proj."},
    {block .. "layernorm_before%.", torchvision_block .. "ln_1."},
    {block .. "layernorm_after%.", torchvision_block .. "ln_2."},
    {block .. "intermediate%.dense%.", torchvision_block .. "mlp.0.", older = {"%.mlp%.0%.", ".mlp.linear_1."}},
    {block .. "output%.dense%.", torchvision_block .. "mlp.3.", older = {"%.mlp%.3%.", ".mlp.linear_2."}},
    {"^layernorm%.", "encoder.ln."},
    {"^classifier%.", "heads.head."},
  }, block, torchvision_block .. "self_attention.in_proj_"),
}, {
  mark = "patch_embed.proj.weight",
  rules = add_parts({
    {"^embeddings%.cls_token$", "cls_token"},
    {"^embeddings%.position_embeddings$", "pos_embed"},
    {"^embeddings%.patch_embeddings%.projection%.", "patch_embed.proj."},
    {block .. "attention%.output%.dense%.", "blocks.%1.attn.proj."},
    {block .. "layernorm_before%.", "blocks.%1.norm1."},
    {block .. "layernorm_after%.", "blocks.%1.norm2."},
    {block .. "intermediate%.dense%.", "blocks.%1.mlp.fc1."},
    {block .. "output%.dense%.", "blocks.%1.mlp.fc2."},
    {"^layernorm%.", "norm."},
    {"^classifier%.", "head."},
  }, block, "blocks.%1.attn.qkv."),
}}

-- torchvision's list alternates between downsampling and stages.
local function features(step, rest)
  return function(stage, number) return ("features.%d.%s."):format(2 * stage + step, rest:format(number)) end
end

image_names.convnext = {{
  mark = "features.0.0.weight",
  rules = {
    {"^embeddings%.patch_embeddings%.", "features.0.0."},
    {"^embeddings%.layernorm%.", "features.0.1."},
    {"^encoder%.stages%.(%d+)%.downsampling_layer%.(%d)%.", features(0, "%d")},
    {layer .. "layer_scale_parameter$", function(stage, number)
      return ("features.%d.%d.layer_scale"):format(2 * stage + 1, number)
    end},
    {layer .. "dwconv%.", features(1, "%d.block.0")},
    {layer .. "layernorm%.", features(1, "%d.block.2")},
    {layer .. "pwconv1%.", features(1, "%d.block.3")},
    {layer .. "pwconv2%.", features(1, "%d.block.5")},
    {"^layernorm%.", "classifier.0."},
    {"^classifier%.", "classifier.2."},
  },
}, {
  mark = "stem.0.weight",
  rules = {
    {"^embeddings%.patch_embeddings%.", "stem.0."},
    {"^embeddings%.layernorm%.", "stem.1."},
    {"^encoder%.stages%.(%d+)%.downsampling_layer%.(%d)%.", "stages.%1.downsample.%2."},
    {layer .. "layer_scale_parameter$", "stages.%1.blocks.%2.gamma"},
    {layer .. "dwconv%.", "stages.%1.blocks.%2.conv_dw."},
    {layer .. "layernorm%.", "stages.%1.blocks.%2.norm."},
    {layer .. "pwconv1%.", "stages.%1.blocks.%2.mlp.fc1."},
    {layer .. "pwconv2%.", "stages.%1.blocks.%2.mlp.fc2."},
    {"^layernorm%.", "head.norm."},
    {"^classifier%.", "head.fc."},
  },
}}

--- Return the name in files of a model's name, and its rule; none where the scheme has no such name.
---@param scheme table
---@param prefix string the base model's, in models with a head
---@return string?
---@return table?
function image_names.stored_name(scheme, name, prefix)
  if name:sub(1, #prefix + 1) == prefix .. "." then name = name:sub(#prefix + 2) end
  for _, rule in ipairs(scheme.rules) do
    local stored, count = name:gsub(rule[1], rule[2])
    if count > 0 then return stored, rule end
  end
end

-- Return the model's part of a tensor in files, in the model's shape where the number of elements is the same. A third
-- is copied: a parameter may be no view of a larger tensor.
local function own_tensor(tensor, rule, own)
  local rows = tensor:dim() > 0 and tensor:size(0) or 0
  if rule[3] and rows % 3 == 0 then tensor = tensor:narrow(0, (rule[3] - 1) * rows / 3, rows / 3):clone() end
  if tensor:dim() ~= own:dim() and tensor:numel() == own:numel() then tensor = tensor:reshape(own:shape()) end
  return tensor
end

-- Move the tensors of a scheme's names to the model's names.
local function convert(state, own, scheme, prefix)
  local result, used = {}, {}
  for name, tensor in pairs(own) do
    local stored, rule = image_names.stored_name(scheme, name, prefix)
    if rule and rule.older and state[stored] == nil then stored = stored:gsub(rule.older[1], rule.older[2]) end
    local found = rule and state[stored]
    if C.is_tensor(found) then result[name], used[stored] = own_tensor(found, rule, tensor), true end
  end
  for name, tensor in pairs(state) do
    if not used[name] then result[name] = tensor end
  end
  return result
end

--- Return the tensors of a file in the model's names; others keep theirs.
---@param state table<string, Tensor>
---@param own table<string, Tensor> the model's tensors
---@param schemes table a list of this file
---@param prefix string the base model's, in models with a head
---@return table<string, Tensor>
function image_names.own_names(state, own, schemes, prefix)
  for _, scheme in ipairs(schemes) do
    if state[scheme.mark] ~= nil then return convert(state, own, scheme, prefix) end
  end
  return state
end

return image_names
