--- accelhost.peft: fine-tune a model by small adapters, with the names and the files of the peft library.
--
--   | local peft = accelhost.peft
--   | model = peft.get_peft_model(model, peft.LoraConfig{r = 16, lora_alpha = 32, task_type = "CAUSAL_LM"})
--   | model:print_trainable_parameters()
--   | -- ... train ...
--   | model:save_pretrained("adapter")
local namespace = require "accelhost.util.namespace"

local lazy = {}
namespace.add(lazy, "accelhost.peft.auto", {
  "AutoPeftModelForCausalLM", "AutoPeftModelForQuestionAnswering", "AutoPeftModelForSeq2SeqLM",
  "AutoPeftModelForSequenceClassification", "AutoPeftModelForTokenClassification",
})
namespace.add(lazy, "accelhost.peft.config", {
  "IA3Config", "LoraConfig", "PeftConfig", "PrefixTuningConfig", "PromptEncoderConfig", "PromptTuningConfig",
})
namespace.add(lazy, "accelhost.peft.model", {"PeftModel", "get_peft_model"})
namespace.add(lazy, "accelhost.peft.kbit_training", {"prepare_model_for_kbit_training"})

return namespace.new("accelhost.peft", {}, lazy)
