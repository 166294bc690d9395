--- Find entries of the reference by a word typed by the user.
local answers = require "accelhost.docs.answers"

-- The usual classes of variables of these names; copy is Python's module (copy.deepcopy).
local held = {
  model = "nn.Module:", net = "nn.Module:", module = "nn.Module:", layer = "nn.Module:",
  optimizer = "optim.Optimizer:", scheduler = "optim.lr_scheduler.LRScheduler:", loader = "data.DataLoader:",
  dataloader = "data.DataLoader:", copy = "nn.Module:", accelerator = "accelhost.Accelerator:",
}

-- Modules of other packages, and the modules that have their names here.
local homes = {
  {"torch.cuda.amp.", "amp."}, {"torch.cpu.amp.", "amp."}, {"torch.utils.data.distributed.", "data."},
  {"torch.nn.modules.%l+.", "nn."},
  {"torch.distributed.nn.functional.", "distributed.nn."},
  {"torch.utils.tensorboard.", "track."}, {"tensorboardX.", "track."},
  {"torchvision.transforms.v2.functional.", "data.transforms.functional."},
  {"torchvision.transforms.functional.", "data.transforms.functional."},
  {"torchvision.transforms.v2.", "data.transforms."}, {"torchvision.transforms.", "data.transforms."},
  {"torchvision.datasets.", "data."}, {"torchvision.io.", "data."}, {"torchvision.utils.", "data."},
  {"datasets.", "data."},
  {"torchvision.models.", "models."}, {"timm.", "models."},
  {"accelerate.utils.", "utils.", "accelhost."}, {"accelerate.", "accelhost.", "utils."},
  {"transformers.", "accelhost.", "models.", "text.", "optim.", "utils."}, {"tokenizers.", "text."},
  {"torchmetrics.", "metrics."}, {"sklearn.metrics.", "metrics."}, {"evaluate.", "metrics."},
  {"safetensors.torch.", "accelhost."},
}

-- The spellings of a name with its module's in another package; nil where the module is none of these.
local function spellings_of_module(word)
  for _, row in ipairs(homes) do
    local rest = word:match("^" .. row[1]:gsub("%.", "%%.") .. "(.*)$")
    if rest then
      local list = {}
      for i = 2, #row do list[i - 1] = row[i] .. rest end
      return list
    end
  end
end

-- Return the spellings of a word, with and without the prefixes that PyTorch users write or leave out. A name of
-- another package has its module's place here, or none: a method of the same name is something else.
local function spellings(word)
  if answers.is_foreign(word) then
    local plain = word:gsub("%(.*", ""):gsub("^torch%.", "")
    local list = spellings_of_module(word) or {}
    for _, name in ipairs {plain, "accelhost." .. plain, (plain:gsub("^utils%.data%.?", "data.")),
      not plain:find "[%.:]" and word:find "^torch%." and "Tensor:" .. plain or plain} do
      list[#list + 1] = name
    end
    return list
  end
  local plain = word:gsub("%(.*", ""):gsub("^torch%.", ""):gsub("^accelhost%.", "")
  local holder, rest = plain:match "^([%l_]+)[%.:]([%w_]+)$"
  return {
    word, plain, "accelhost." .. plain, (plain:gsub("^F%.", "nn.functional.")), (plain:gsub("^tensor[%.:]", "Tensor:")),
    (plain:gsub("^utils%.data%.?", "data."):gsub("%.$", "")), holder and (held[holder] or "Tensor:") .. rest or plain,
    "Tensor:" .. plain, "Tensor." .. plain, "nn." .. plain, "nn.functional." .. plain, "optim." .. plain,
    "optim.lr_scheduler." .. plain, "data." .. plain, "data.transforms." .. plain, "nn.Module:" .. plain,
    "optim.Optimizer:" .. plain, "accelhost.Accelerator:" .. plain, "data.DataLoader:" .. plain,
  }
end

--- Return the meaning of a word: an entry, or nil and a page. Case is ignored where that leaves one meaning.
---@param reference table the model
---@return table? entry
---@return table? page
return function(reference, word)
  word = word == "F" and "nn.functional" or word == "torch" and "accelhost" or word
  local tried = spellings(word)
  for i = 1, #tried do
    for _, page in ipairs(reference.pages) do
      if page.name == tried[i] and not page.class then return nil, page end
    end
    if reference.by_name[tried[i]] then return reference.by_name[tried[i]] end
  end
  if answers.is_foreign(word) then return nil end
  for _, page in ipairs(reference.pages) do
    if not page.class and page.name:match "[%w_]+$" == word then return nil, page end
  end
  for _, entry in ipairs(reference.entries) do
    if entry.name:match "[%w_]+$" == word then return entry end
  end
  local found
  for _, entry in ipairs(reference.entries) do
    if entry.name:lower() == tried[2]:lower() or entry.name:match("[%w_]+$"):lower() == word:lower() then
      if found then return nil end
      found = entry
    end
  end
  return found
end
