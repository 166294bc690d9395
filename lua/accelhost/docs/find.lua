--- From a word as a user types it to what the reference tells.

-- What variables of these names mostly hold.
local held = {
  model = "nn.Module:", net = "nn.Module:", module = "nn.Module:", layer = "nn.Module:",
  optimizer = "optim.Optimizer:", scheduler = "optim.lr_scheduler.LRScheduler:", loader = "data.DataLoader:",
  dataloader = "data.DataLoader:", accelerator = "accelhost.Accelerator:",
}

-- Words that PyTorch users put before a name, or leave out.
local function spellings(word)
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

--- What a word means: an entry, or nil and a page. Small and large letters may be mixed up where that leaves one
--- meaning.
---@param told table the model
---@param word string
---@return table? entry
---@return table? page
return function(told, word)
  if word == "F" then word = "nn.functional" end
  local tried = spellings(word)
  for i = 1, #tried do
    for _, page in ipairs(told.pages) do
      if page.name == tried[i] and not page.class then return nil, page end
    end
    if told.by_name[tried[i]] then return told.by_name[tried[i]] end
  end
  for _, entry in ipairs(told.entries) do
    if entry.name:match "[%w_]+$" == word then return entry end
  end
  local found
  for _, entry in ipairs(told.entries) do
    if entry.name:lower() == tried[2]:lower() or entry.name:match("[%w_]+$"):lower() == word:lower() then
      if found then return nil end
      found = entry
    end
  end
  return found
end
