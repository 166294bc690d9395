--- accelhost.text: tokenizers of the Hugging Face format: WordPiece (BERT), BPE (GPT-2, Llama), Unigram (T5).
--
--   local text = accelhost.text
--   local vocabulary = {["[UNK]"] = 0, deep = 1, ["##er"] = 2}
--   local tokenizer = text.Tokenizer{model = {type = "WordPiece", vocab = vocabulary}}
--   print(tokenizer("deeper").input_ids)  --> tensor([[1, 2]])
--
local namespace = require "accelhost.util.namespace"

local lazy = {AutoTokenizer = {"accelhost.text.auto_tokenizer"}}
namespace.add(lazy, "accelhost.text.tokenizer", {"Tokenizer"})
namespace.add(lazy, "accelhost.text.batch_encoding", {"BatchEncoding"})
namespace.add(lazy, "accelhost.text.characters", {"character_tokenizer"})
namespace.add(lazy, "accelhost.text.collators", {
  "DataCollatorForLanguageModeling", "DataCollatorForSeq2Seq", "DataCollatorForTokenClassification",
  "DataCollatorWithFlattening", "DataCollatorWithPadding",
})
namespace.add(lazy, "accelhost.text.streamer", {"TextStreamer"})

return namespace.new("text", {}, lazy)
