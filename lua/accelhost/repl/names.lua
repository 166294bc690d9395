--- The predefined names of a prompt: accelhost, its parts under the names usual in scripts, and the functions that make
--- tensors, so that `randn(2, 3)` needs no preparation. Nothing is loaded before it is mentioned.
local names = {}

local function library()
  return require "accelhost"
end

local special = {
  accelhost = library,
  F = function() return library().nn.functional end,
}

-- Names of accelhost that are predefined under the same name.
local same = {}
for name in ([[
  accelerator nn optim data linalg distributed
  tensor zeros ones full empty eye arange linspace logspace rand randn randint randperm
  zeros_like ones_like full_like empty_like rand_like randn_like randint_like
  cat stack no_grad manual_seed set_grad_enabled plot
]]):gmatch "%S+" do
  same[name] = true
end

--- All of them, sorted.
function names.all()
  local list = {}
  for name in pairs(special) do list[#list + 1] = name end
  for name in pairs(same) do list[#list + 1] = name end
  table.sort(list)
  return list
end

--- The value of one, nil when the name is none.
function names.find(name)
  if special[name] then return special[name]() end
  return same[name] and library()[name] or nil
end

return names
