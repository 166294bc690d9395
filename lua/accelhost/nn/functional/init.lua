--- accelhost.nn.functional: functions without state. Names of the op table marked functional come from there; those
-- of the files below are compositions of ops, loaded when a name is first used. Options are positional in PyTorch's
-- order or named in one trailing table.
local C = require "accelhost._C"
local namespace = require "accelhost.util.namespace"

-- Which file holds which names.
local files = {
  activation = {"relu6", "logsigmoid", "softsign", "mish", "selu", "gumbel_softmax"},
  attention = {"multi_head_attention_forward"},
  distance = {"normalize", "cosine_similarity", "pairwise_distance"},
  dropout = {"dropout1d", "dropout2d"},
  linear = {"bilinear"},
  loss = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"},
  pad = {"pad"},
}

local lazy = {}
for file, names in pairs(files) do namespace.add(lazy, "accelhost.nn.functional." .. file, names) end

--- The op of this name, if the table lists it as functional ("relu", or "relu_" in place).
local function op(name)
  local info = C.op_info(name) or C.op_info((name:gsub("_$", "")))
  return info and info.functional and C[name] or nil
end

return namespace.new("nn.functional", {}, lazy, {
  find = op,
  names = function()
    local list = {}
    for name in pairs(C) do
      if op(name) then list[#list + 1] = name end
    end
    return list
  end,
})
