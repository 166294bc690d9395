--- accelhost generate: continue a text, or answer, with the model of a checkpoint folder.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local cache = require "accelhost.models.common.cache"
local options = require "accelhost.generate.options"

local MOST_TOKENS = 256

-- Replace the folder of an adapter by that of its base, with the adapter.
local function find_base(mine)
  local folder = mine.model
  if C.data.look(folder .. "/config.json") or C.data.look(folder .. "/adapter_config.json") ~= "file" then return end
  local _, base = require("accelhost.peft.auto").base_of("MODEL", folder, "accelhost generate BASE --adapter FOLDER")
  mine.model, mine.adapter = base, mine.adapter or folder
end

local function with_adapter(model, folder)
  local adapted = require("accelhost.peft").PeftModel.from_pretrained(model, folder)
  return adapted.peft_config.default.is_prompt_learning and adapted or adapted:merge_and_unload()
end

local function load(mine)
  local models, text = require "accelhost.models", require "accelhost.text"
  find_base(mine)
  local config = models.AutoConfig.from_pretrained(mine.model) -- before the tokenizer: reports a wrong folder as such
  local made = {tokenizer = text.AutoTokenizer.from_pretrained(mine.model), has_encoder = config.is_encoder_decoder}
  local Auto = made.has_encoder and models.AutoModelForSeq2SeqLM or models.AutoModelForCausalLM
  made.model = Auto.from_pretrained(mine.model, {dtype = mine.dtype})
  if mine.adapter then made.model = with_adapter(made.model, mine.adapter) end
  if mine.assistant then
    made.assistant = models.AutoModelForCausalLM.from_pretrained(mine.assistant, {dtype = mine.dtype})
  end
  return made
end

-- Return the options of generation: those of the command, and others that follow from them.
local function complete(made, mine, generation)
  local o, stored = arguments.copy(generation), made.model.generation_config or {}
  for _, name in ipairs(options.draws) do
    if o[name] ~= nil and o.do_sample == nil and not o.num_beams then o.do_sample = true end
  end
  if made.model.config.eos_token_id == nil and not stored.eos_token_id and not o.eos_token_id then
    o.eos_token_id = made.tokenizer.eos_token_id
  end
  o.assistant_model, o.tokenizer, o.return_dict_in_generate = made.assistant, made.tokenizer, true
  made.is_bounded = o.max_new_tokens or o.max_length or stored.max_new_tokens or stored.max_length
  made.several = (o.num_beams or stored.num_beams or 1) > 1
    or (o.num_return_sequences or stored.num_return_sequences or 1) > 1
  mine.stream = mine.stream and not made.several
  return o
end

-- Watch the clock while tokens are written.
local function new_clock(tokens)
  local clock = {prompt = tokens, written = 0, begin = C.system.now()}
  function clock.put()
    clock.written, clock.last = clock.written + 1, C.system.now()
    clock.first = clock.first or clock.last
  end
  return clock
end

local function rate(count, seconds)
  local per_second = count / seconds
  return seconds > 0 and (per_second < 100 and "%.3g tokens/s" or "%.0f tokens/s"):format(per_second) or "-"
end

local function report(clock)
  local first, last = clock.first or C.system.now(), clock.last or C.system.now()
  io.stdout:flush()
  io.stderr:write(("prompt: %d tokens, %s; text: %d tokens, %s\n"):format(clock.prompt,
    rate(clock.prompt, first - clock.begin), clock.written, rate(clock.written - 1, last - first)))
end

-- Return the function that receives each new token, and the text in the end.
local function output(made, mine, clock)
  local streamer = require("accelhost.text").TextStreamer(made.tokenizer, {skip_special_tokens = true})
  return function(tokens)
    clock.put()
    if mine.stream then streamer:put(tokens) end
  end, function(sequences, first)
    if mine.stream then return streamer:finish() end
    for i = 0, sequences:size(0) - 1 do
      local new = sequences[i]:narrow(0, first, sequences:size(1) - first)
      io.write(made.tokenizer:decode(new, {skip_special_tokens = true}), "\n")
    end
    io.flush()
  end
end

-- Continue ids; past: keys and values of the first of them.
local function write(made, mine, o, ids, past)
  local clock, interrupted = new_clock(ids:size(1) - (past and cache.seen(past[1]) or 0)), false
  local put, finish = output(made, mine, clock)
  local own = arguments.copy(o)
  if not made.is_bounded then
    local most = made.model.has_any_length and math.huge or made.model.config.n_positions - ids:size(1)
    own.max_new_tokens = math.max(1, math.min(MOST_TOKENS, most))
  end
  if made.several then own.stopping_criteria = {function() clock.put() return false end} else own.on_token = put end
  own.past_key_values, own.stopping_criteria = past, own.stopping_criteria or {}
  table.insert(own.stopping_criteria, function()
    interrupted = interrupted or C.interrupt.take()
    return interrupted
  end)
  local result = made.model:generate(ids, own)
  finish(result.sequences, made.has_encoder and 1 or ids:size(1)) -- after an encoder: the decoder's first token
  return result, clock, interrupted
end

local function encode(made, prompt)
  local ids = made.tokenizer(prompt, {return_attention_mask = false, return_token_type_ids = false}).input_ids
  if ids:size(1) > 0 then return ids end
  local first = made.tokenizer.bos_token_id
  if not first then arguments.raise "the prompt has no tokens; expected some text in --prompt or on standard input" end
  return C.tensor({{first}}, {dtype = "int64"})
end

local function continue_text(made, mine, o)
  local prompt = mine.prompt
  if not prompt then
    prompt = io.read "*a" or ""
    prompt = prompt:gsub("\n$", "")
  end
  local ids = encode(made, prompt)
  if mine.echo then io.write(prompt) end
  local _, clock, interrupted = write(made, mine, o, ids)
  report(clock)
  return interrupted and 130 or 0
end

-- Return the keys and values of the tokens that a conversation begins with again.
local function common_past(known, ids)
  if not known.past then return nil end
  local before, now, same = known.ids[0]:tolist(), ids[0]:tolist(), 0
  while same < #now - 1 and before[same + 1] == now[same + 1] do same = same + 1 end
  same = math.min(same, cache.seen(known.past[1]))
  if same == 0 then return nil end
  return same == cache.seen(known.past[1]) and known.past or cache.crop(known.past, same)
end

local function answer(made, mine, o, messages, known)
  local ids = made.tokenizer:apply_chat_template(messages, {add_generation_prompt = true}).input_ids
  local result, clock, interrupted = write(made, mine, o, ids, common_past(known, ids))
  if not made.several then known.ids, known.past = result.sequences, result.past_key_values end
  local new = result.sequences[0]:narrow(0, ids:size(1), result.sequences:size(1) - ids:size(1))
  messages[#messages + 1] = {
    role = "assistant", content = made.tokenizer:decode(new, {skip_special_tokens = true}),
  }
  return clock, interrupted
end

local function next_line(is_terminal)
  if is_terminal then return C.edit.read "> " end
  local line = io.read "*l"
  return line, line == nil and "end" or nil
end

local function converse(made, mine, o)
  local messages, known, total = {}, {}, nil
  if mine.system then messages[1] = {role = "system", content = mine.system} end
  local is_terminal = C.edit.is_terminal() and not mine.prompt
  if is_terminal then
    io.write "An empty line or Ctrl-D ends the conversation, Ctrl-C an answer.\n"
    C.edit.open(nil, function() return {} end)
  end
  local interrupted
  repeat
    local line, why = mine.prompt, nil
    if not line then line, why = next_line(is_terminal) end
    if not line and is_terminal then io.write "\n" end
    if not line or is_terminal and not line:find "%S" then
      if why ~= "interrupt" or is_terminal then break end
    else
      messages[#messages + 1] = {role = "user", content = line}
      local clock
      clock, interrupted = answer(made, mine, o, messages, known)
      total = clock
      if is_terminal then report(clock) end
    end
  until mine.prompt or interrupted and not is_terminal
  if total and not is_terminal then report(total) end
  return interrupted and not is_terminal and 130 or 0
end

local function run(mine, generation)
  local made = load(mine)
  local o = complete(made, mine, generation)
  if mine.chat and not made.tokenizer.chat_template then
    arguments.raise("the tokenizer in '%s' has no chat template; leave --chat out", mine.model)
  end
  C.random.manual_seed(mine.seed or 0)
  C.interrupt.watch()
  return (mine.chat and converse or continue_text)(made, mine, o)
end

--- Run the command.
---@param ... string the words after its name
---@return integer # the exit code
return function(...)
  local fine, mine, generation = pcall(options.read, {...})
  if not fine then
    if type(mine) ~= "table" then error(mine, 0) end
    io.stderr:write("accelhost generate: ", mine.usage, "\nTry 'accelhost generate --help'.\n")
    return 2
  end
  if mine.help then
    io.write(options.help())
    return 0
  end
  local done, result = pcall(run, mine, generation)
  io.stdout:flush()
  if done then return result end
  local text = tostring(result):gsub("\n.*", ""):gsub("^generate:%d+: ", "")
  io.stderr:write("accelhost generate: ", text, "\n")
  return 1
end
