--- The options of `accelhost generate`: its own and those of generation, as GenerationConfig has them.
local C = require "accelhost._C"
local config = require "accelhost.models.common.generation_config"

local options = {}

-- name, type, the value's name in the help, help.
local own = {
  {"prompt", "text", "TEXT", "beginning of the text (default: standard input)"},
  {"chat", "flag", nil, "answer by the tokenizer's chat template; without --prompt line by line"},
  {"system", "text", "TEXT", "with --chat: message before the first one"},
  {"echo", "flag", nil, "print the prompt too"},
  {"stream", "flag", nil, "print each token at once (default); --no_stream: the whole text in the end"},
  {"dtype", "text", "DTYPE", "float32, bfloat16, float16 or auto (default: as stored)"},
  {"adapter", "text", "FOLDER", "adapter of the peft library; LoRA and IA3 are merged into the weights"},
  {"assistant", "text", "FOLDER", "smaller model that proposes tokens, of the same vocabulary"},
  {"seed", "integer", "N", "seed of the draws (default 0)"},
}

local value_names = {integer = "N", number = "X", ids = "N,N,...", texts = "TEXT"}

-- Options of the library alone, or that the command sets.
local hidden = {use_cache = true, bos_token_id = true, decoder_start_token_id = true}

--- Options that draw tokens: one of them implies do_sample.
options.draws = {
  "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "num_return_sequences",
}

local function all_rows()
  local rows = {}
  for i, row in ipairs(own) do rows[i] = {name = row[1], type = row[2], value = row[3], help = row[4]} end
  for _, row in ipairs(config.rows) do
    local kind = row[3][3]
    if kind and not hidden[row[1]] then
      local default = row[2] and kind ~= "flag" and row[2] ~= 0 and (" (default %s)"):format(tostring(row[2])) or ""
      if row[1] == "max_new_tokens" then default = " (default 256)" end
      rows[#rows + 1] = {name = row[1], type = kind, value = value_names[kind],
        help = row[4]:gsub(" %(default: until.*", "") .. default, generation = row}
    end
  end
  return rows
end

--- Return the text of --help.
function options.help()
  local page, rows = require "accelhost.util.page"(), {}
  page:line "usage: accelhost generate MODEL [options]"
  page:line()
  page:wrap([[Continues a text with the model in a checkpoint folder (config.json, model.safetensors, tokenizer.json),
    or answers by it; a T5 writes a text for the prompt. MODEL may be the folder of an adapter that names its base. The
    text is printed token by token; on standard error, in the end, tokens per second. Options of generation that are not
    set have the values of the folder's generation_config.json. Options that choose among likely tokens (temperature,
    top_p, ...) imply do_sample. Ctrl-C ends the text.]], 0)
  page:line()
  page:line "options:"
  for i, row in ipairs(all_rows()) do
    rows[i] = {("--%s%s"):format(row.name, row.value and " " .. row.value or ""), row.help}
  end
  rows[#rows + 1] = {"--help", "this text"}
  page:rows(rows, 2)
  page:line()
  page:line "Each flag has the opposite --no_FLAG."
  page:line()
  page:wrap("exit codes: 0 ok, 1 the folder or an option is wrong, 2 usage, 130 ended by Ctrl-C", 0)
  return table.concat(page.lines, "\n") .. "\n"
end

local function wrong(text, ...) error({usage = text:format(...)}, 0) end

local function number_of(row, text)
  local value = tonumber(text)
  if not value or row.type == "integer" and value % 1 ~= 0 then
    wrong("--%s: expected %s, got '%s'", row.name, row.type == "integer" and "an integer" or "a number", text)
  end
  return value
end

local function value_of(row, text, before)
  if row.type == "text" then return text end
  if row.type == "texts" then
    local list = before or {}
    list[#list + 1] = text
    return list
  end
  if row.type ~= "ids" then return number_of(row, text) end
  local list = {}
  for item in text:gmatch "[^,]+" do list[#list + 1] = number_of({name = row.name, type = "integer"}, item) end
  return list
end

local function find(rows, name)
  local names = {"help"}
  for _, row in ipairs(rows) do
    if row.name == name then return row end
    if row.type == "flag" and "no_" .. row.name == name then return row, true end
    names[#names + 1] = row.name
  end
  local near = C.system.nearest(name, names)
  wrong("unknown option '--%s'%s", name, near and (" (did you mean '--%s'?)"):format(near) or "")
end

--- Read the words of a command line. Raises {usage = text}.
---@param words string[]
---@return table own the command's options, with the folder as `model`
---@return table generation options of generation
function options.read(words)
  local rows, mine, generation, i = all_rows(), {stream = true}, {}, 1
  while i <= #words do
    local word = words[i]
    local name, inline = word:match "^%-%-([^=]+)=(.*)$"
    name = name or word:match "^%-%-(.+)$"
    if word == "-h" or name == "help" then return {help = true}, {} end
    if name then
      local row, negated = find(rows, (name:gsub("-", "_")))
      local into = row.generation and generation or mine
      if row.type == "flag" then
        if inline then wrong("--%s has no value", name) end
        into[row.name] = not negated
      else
        if not inline then i = i + 1 end
        local text = inline or words[i]
        if not text then wrong("--%s expects a value", name) end
        into[row.name] = value_of(row, text, into[row.name])
        if row.generation and not row.generation[3][2](into[row.name]) then
          wrong("--%s: expected %s, got '%s'", name, row.generation[3][1], text)
        end
      end
    elseif mine.model then
      wrong("unexpected argument '%s'", word)
    else
      mine.model = word
    end
    i = i + 1
  end
  if not mine.model then wrong "expected the folder of a model" end
  return mine, generation
end

return options
