-- The coverage of PyTorch's names: a page of Markdown. usage: accelhost scripts/coverage/table.lua [--open|--here]
-- Each name is here, under another name, or not here because; --open lists only the names without an answer, and fails
-- if there are any; --here lists those that are here.
local answers = require "accelhost.docs.answers"
local accelhost = require "accelhost"

local file = assert(io.open((arg[0]:match "^(.*/)" or "./") .. "generated/names.json"))
local names = accelhost.json.decode(file:read "*a")
file:close()
local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data

local tensor = accelhost.zeros {1, 1}
local module = nn.Linear(1, 1)
-- Our place of each namespace of PyTorch.
local places = {
  ["torch"] = accelhost, ["torch.Tensor"] = tensor, ["torch.nn"] = nn, ["torch.nn.Module"] = module,
  ["torch.nn.functional"] = nn.functional, ["torch.nn.init"] = nn.init, ["torch.nn.utils"] = nn.utils,
  ["torch.optim"] = optim, ["torch.utils.data"] = data, ["torch.autograd"] = accelhost.autograd,
  ["torch.distributed"] = accelhost.distributed,
}
for _, path in ipairs {"fft", "linalg", "special", "nn.utils.rnn", "nn.utils.parametrize", "nn.utils.parametrizations",
  "optim.lr_scheduler", "optim.swa_utils", "utils.checkpoint"} do
  local place = accelhost
  for step in path:gmatch "[%w_]+" do
    local ok, value = pcall(function() return place[step] end)
    place = ok and value or {}
  end
  places["torch." .. path] = place
end

-- Fields of a tensor that are read as such though they may be nil.
local fields = {grad = true, grad_fn = true, is_leaf = true, requires_grad = true, dtype = true, device = true}

local function is_here(space, name)
  local place = places[space]
  if not place then return false end
  if space == "torch.Tensor" and fields[name] then return true end
  local ok, value = pcall(function() return place[name] end)
  return ok and value ~= nil
end

--- A namespace's names: here, by other name (rows), by reason (lists in order of appearance), open.
local function sorted(space, list)
  local found = {here = {}, renamed = {}, reasons = {}, of_reason = {}, open = {}, count = 0}
  for _, name in ipairs(list) do
    found.count = found.count + 1
    local answer = not is_here(space, name) and answers.of(space, name)
    if is_here(space, name) then
      found.here[#found.here + 1] = name
    elseif not answer then
      found.open[#found.open + 1] = name
    elseif answer:find "^as " then
      found.renamed[#found.renamed + 1] = {name, answer:sub(4)}
    else
      if not found.of_reason[answer] then
        found.of_reason[answer] = {}
        found.reasons[#found.reasons + 1] = answer
      end
      table.insert(found.of_reason[answer], name)
    end
  end
  return found
end

local function code(list) return "`" .. table.concat(list, "` `") .. "`" end

local function page(all)
  local out = {}
  local function line(format, ...) out[#out + 1] = format:format(...) end
  line("# Names of PyTorch %s\n", names.version)
  line("| namespace | names | here | other name | not here | open |\n|---|---:|---:|---:|---:|---:|")
  for _, item in ipairs(all) do
    local found, refused = item.found, 0
    for _, list in pairs(found.of_reason) do refused = refused + #list end
    line("| %s | %d | %d | %d | %d | %d |", item.space, found.count, #found.here, #found.renamed, refused, #found.open)
  end
  for _, item in ipairs(all) do
    local found = item.found
    line("\n## %s\n", item.space)
    if #found.here > 0 then line("Here: %s\n", code(found.here)) end
    if #found.renamed > 0 then
      line("| PyTorch | accelhost |\n|---|---|")
      for _, row in ipairs(found.renamed) do line("| `%s` | %s |", row[1], row[2]) end
      line("")
    end
    for _, reason in ipairs(found.reasons) do line("Not here (%s): %s\n", reason, code(found.of_reason[reason])) end
    if #found.open > 0 then line("Open: %s\n", code(found.open)) end
  end
  return table.concat(out, "\n")
end

local all, open = {}, 0
for _, row in ipairs(names.spaces) do
  local found = sorted(row[1], row[2])
  open = open + #found.open
  all[#all + 1] = {space = row[1], found = found}
end
if arg[1] == "--here" then
  for _, item in ipairs(all) do
    for _, name in ipairs(item.found.here) do print(item.space, name) end
  end
  os.exit(0)
end
if arg[1] == "--open" then
  for _, item in ipairs(all) do
    if #item.found.open > 0 then print(("%-32s %s"):format(item.space, table.concat(item.found.open, " "))) end
  end
  print(open .. " names without an answer")
  os.exit(open == 0 and 0 or 1)
end
print(page(all))
