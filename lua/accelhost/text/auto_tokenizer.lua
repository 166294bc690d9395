--- Tokenizers from folders.
local arguments = require "accelhost.util.arguments"
local files = require "accelhost.text.files"

---@class AutoTokenizer
local AutoTokenizer = {}

local read = arguments.signature("from_pretrained", {
  "path: string", {"do_lower_case: flag"}, {"model_max_length: number"}, {"padding_side: 'right'|'left'"},
  {"truncation_side: 'right'|'left'"},
})

--- The tokenizer of a folder in Hugging Face's layout: tokenizer.json, or vocab.txt (BERT), or vocab.json with
--- merges.txt (GPT-2), and tokenizer_config.json, special_tokens_map.json and chat_template.jinja where they are there.
--
--   | local tokenizer = accelhost.text.AutoTokenizer.from_pretrained("all-MiniLM-L6-v2")
--   print(tokenizer("a sentence").input_ids)
---@param path string a folder; nothing is downloaded
---@param do_lower_case? boolean|table for a folder with vocab.txt alone (default true)
---@param model_max_length? number instead of the folder's; padding_side and truncation_side likewise
---@return Tokenizer
function AutoTokenizer.from_pretrained(...)
  local path, do_lower_case, model_max_length, padding_side, truncation_side = read(...)
  return files.load(path, {
    do_lower_case = do_lower_case, model_max_length = model_max_length, padding_side = padding_side,
    truncation_side = truncation_side,
  })
end

return AutoTokenizer
