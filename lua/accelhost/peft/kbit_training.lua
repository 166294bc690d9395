--- Preparing a model with quantised weights for its adapters (QLoRA).
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local read = arguments.signature("prepare_model_for_kbit_training", {
  "model: module", {"use_gradient_checkpointing: flag", true}, {"gradient_checkpointing_kwargs: table"},
})

--- Freeze a model, convert its weights in halves (norms, embeddings, the head) to float32, and drop the activations
--- inside of layers until backward.
--
--   | local model = models.AutoModelForCausalLM.from_pretrained("SmolLM2", {
--   |   quantization_config = models.BitsAndBytesConfig{load_in_4bit = true, bnb_4bit_quant_type = "nf4"},
--   | })
--   | model = peft.get_peft_model(peft.prepare_model_for_kbit_training(model), peft.LoraConfig{r = 16})
---@param gradient_checkpointing_kwargs? table options of accelhost.utils.checkpoint.checkpoint
---@return PreTrainedModel model
local function prepare_model_for_kbit_training(...)
  local model, recomputes, options = read(...)
  for _, tensor in ipairs(model:parameters()) do
    tensor.requires_grad = false
    if tensor.dtype == "float16" or tensor.dtype == "bfloat16" then
      C.set_data(tensor, C.autograd.no_grad(tensor.to, tensor, "float32"))
    end
  end
  if recomputes and (model.is_loaded_in_4bit or model.is_loaded_in_8bit) then
    model:gradient_checkpointing_enable(options)
  end
  return model
end

return {prepare_model_for_kbit_training = prepare_model_for_kbit_training}
