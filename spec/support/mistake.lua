--- Mistakes made on purpose: a script with one is run, and its message is judged.
--
--   mistake.each {
--     {"a layer that is not there", "model.fc3(x)", "model (Net) has no 'fc3'; did you mean 'fc1'?"},
--   }
--
-- The message has to begin with the script's line, contain all the texts, and name nothing of the library's internals.
local busted = require "busted"
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local mistake = {}

local preamble = [[
local accelhost = require "accelhost"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data
local Net = nn.Module:extend "Net"
function Net:init() self.fc1 = nn.Linear(4, 3) self.fc2 = nn.Linear(3, 2) end
function Net:forward(x) return self.fc2(F.relu(self.fc1(x))) end
local model, x, y = Net(), accelhost.randn(8, 4), accelhost.arange(8) % 2
local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
local accelerator = accelhost.Accelerator()
local dataset = data.TensorDataset(x, y)
local loader = data.DataLoader(dataset, {batch_size = 4})
local loss = F.cross_entropy(model(x), y)
]]
local _, lines = preamble:gsub("\n", "")

--- Run a script of the preamble and this code.
---@param code string
---@param words string[]? before the script's name
---@return table result of run.host
function mistake.run(code, words)
  local result
  folder.with(function(path)
    local file = assert(io.open(path .. "/train.lua", "w"))
    file:write(preamble, code, "\n")
    file:close()
    local all = {}
    for i, word in ipairs(words or {}) do all[i] = word end
    all[#all + 1] = "train.lua"
    result = run.host(all, {timeout = 60, dir = path})
  end)
  return result
end

--- Raise unless the message of a mistake at the first line of `code` contains `texts`.
---@param result table
---@param texts string[]
---@param number integer? of the script's line; default: the first one of the code
function mistake.judge(result, texts, number)
  local message = result.stderr:gsub("^\n", "")
  assert(result.code == 1, ("exit code %d: %s"):format(result.code, result.output))
  local where = ("train.lua:%d: "):format(number or lines + 1)
  assert(message:sub(1, #where) == where, "it does not begin with " .. where .. message)
  for _, text in ipairs(texts) do
    assert(message:find(text, 1, true), ("no '%s' in: %s"):format(text, message))
  end
  local first = message:match "^[^\n]*"
  for _, inside in ipairs {"accelhost/", "_C", "upvalue", "bad argument #%d to '%?'"} do
    assert(not first:find(inside), "it names internals: " .. first)
  end
end

--- A sentence for each row {title, code, text, ...}; `line` is where the error is, when not in the code's first line.
---@param rows table[]
function mistake.each(rows)
  for _, row in ipairs(rows) do
    busted.it(row[1], function()
      local texts = {}
      for i = 3, #row do texts[i - 2] = row[i] end
      mistake.judge(mistake.run(row[2]), texts, row.line)
    end)
  end
end

return mistake
