-- Continues a text token by token, printed as they are drawn:
--
--   accelhost examples/generate.lua --prompt "ROMEO:" --max_new_tokens 500 --temperature 0.8
--   accelhost examples/generate.lua --model gpt2 --prompt "The meaning of life is" --top_p 0.9
--
-- The model is a checkpoint folder with its tokenizer; without one that of examples/char_gpt.lua, which trains it first
-- where there is none yet.
local accelhost = require "accelhost"
local models, text = accelhost.models, accelhost.text

local args = accelhost.parse_args {
  description = "Continues a text.",
  {"model", nil, "folder of a checkpoint (default: that of char_gpt.lua)", type = "string", metavar = "DIR"},
  {"prompt", "\n", "beginning of the text", metavar = "TEXT"},
  {"max_new_tokens", 300, "tokens to generate", integer = true, minimum = 1},
  {"temperature", 0.8, "of the distribution: below 1 safer, above 1 more random; 0: always the likeliest"},
  {"top_k", 0, "draw from this number of the likeliest tokens (0: all)", integer = true, minimum = 0},
  {"top_p", 1, "draw from the likeliest tokens with this total probability"},
  {"repetition_penalty", 1, "above 1: repeated tokens are less likely"},
  {"dtype", "auto", "dtype of the weights (default: as stored)"},
  {"seed", 1, "seed of the draws", integer = true, minimum = 0},
  {"smoke", false, "the same in a few seconds"},
}

local folder = args.model or args.smoke and "runs/char_gpt_smoke" or "runs/char_gpt"
local config = io.open(folder .. "/config.json")
if config then
  config:close()
elseif not args.model then
  io.stderr:write(("There is no model in '%s' yet: examples/char_gpt.lua trains one.\n"):format(folder))
  local own = arg
  _G.arg = {[0] = arg[0]:gsub("generate%.lua$", "char_gpt.lua"), "--quiet", "--output", folder,
    args.smoke and "--smoke" or nil}
  dofile(_G.arg[0])
  _G.arg = own
end

local tokenizer = text.AutoTokenizer.from_pretrained(folder)
local model = models.AutoModelForCausalLM.from_pretrained(folder, {dtype = args.dtype})
accelhost.manual_seed(args.seed)

local ids = tokenizer(args.prompt, {return_attention_mask = false}).input_ids
if ids:size(1) == 0 then error("the tokenizer knows nothing of the prompt: give another --prompt", 0) end
if tokenizer:decode(ids[0]) ~= args.prompt then
  io.stderr:write("the tokenizer does not know all of the prompt: it reads ", tokenizer:decode(ids[0]), "\n")
end

-- Tokens are shown as soon as they are whole characters.
local waiting = {}
local function show(tokens)
  waiting[#waiting + 1] = tokens:item()
  local words = tokenizer:decode(waiting, {skip_special_tokens = true})
  if words:find "\239\191\189$" then return end -- U+FFFD: bytes of an incomplete character
  io.write(words)
  io.flush()
  waiting = {}
end

-- A model sees a limited number of tokens: when they are full, it continues from the second half of them.
local room, left, written, began = model.config.n_positions, args.max_new_tokens, 0, os.clock()
local half = math.floor(room / 2)
if accelhost.accelerator.is_main_process then
  io.write(args.prompt)
  while left > 0 do
    if ids:size(1) > half then ids = ids:narrow(1, ids:size(1) - half, half) end
    local before, count = ids:size(1), math.min(left, room - ids:size(1))
    ids = model:generate(ids, {
      max_new_tokens = count, do_sample = args.temperature > 0, temperature = math.max(args.temperature, 1e-3),
      top_k = args.top_k, top_p = args.top_p, repetition_penalty = args.repetition_penalty, on_token = show,
    })
    local now = ids:size(1) - before
    left, written = left - now, written + now
    if now < count then break end -- the text has come to its end
  end
  print(("\nSpeed: %.2f tokens/s"):format(written / math.max(1e-3, os.clock() - began)))
end
