--- accelhost.models: encoders (BERT, DistilBERT, RoBERTa, XLM-RoBERTa, MPNet, ELECTRA), decoders (GPT-2, Llama,
--- Mistral, Qwen2, Qwen3, Gemma 2 and 3, Phi-3, GPT-NeoX), T5 and image models (ResNet, ViT, ConvNeXt) under the names,
--- and with the weights, of the transformers library; image models with the weights of torchvision and timm too;
--- embeddings of texts as sentence-transformers has them.
--
--   local models = accelhost.models
--   local config = models.GPT2Config{vocab_size = 11, n_positions = 8, n_embd = 8, n_layer = 1, n_head = 2}
--   local model = models.GPT2LMHeadModel(config):eval()
--   model(accelhost.arange(3):view(1, 3)).logits:size(2)  --> 11
--
-- A checkpoint folder has config.json and model.safetensors (or several files and an index), with Hugging Face's names.
-- Nothing is downloaded.
local namespace = require "accelhost.util.namespace"

local lazy = {}
namespace.add(lazy, "accelhost.models.common.config", {"PretrainedConfig", "GPT2Config", "AutoConfig"})
namespace.add(lazy, "accelhost.models.common.pretrained", {"PreTrainedModel"})
namespace.add(lazy, "accelhost.models.common.quantization", {"BitsAndBytesConfig"})
-- Encoders: file -> the first part of its classes' names.
for file, name in pairs {bert = "Bert", distilbert = "DistilBert", roberta = "Roberta", xlm_roberta = "XLMRoberta",
  mpnet = "MPNet", electra = "Electra"} do
  namespace.add(lazy, "accelhost.models.encoders." .. file, {
    name .. "Config", name .. "Model", name .. "ForSequenceClassification", name .. "ForTokenClassification",
    name .. "ForQuestionAnswering", name .. "ForMultipleChoice", name .. "ForMaskedLM",
  })
end
namespace.add(lazy, "accelhost.models.encoders.electra", {"ElectraForPreTraining"})
namespace.add(lazy, "accelhost.models.t5.t5", {"T5Config", "T5Model", "T5EncoderModel", "T5ForConditionalGeneration"})
namespace.add(lazy, "accelhost.models.decoders.gpt2", {"Conv1D", "GPT2Model", "GPT2LMHeadModel"})
namespace.add(lazy, "accelhost.models.common.generation_config", {"GenerationConfig"})
-- Decoders: file -> the first part of its classes' names.
for file, name in pairs {llama = "Llama", mistral = "Mistral", qwen2 = "Qwen2", qwen3 = "Qwen3", gemma2 = "Gemma2",
  phi3 = "Phi3", gpt_neox = "GPTNeoX"} do
  namespace.add(lazy, "accelhost.models.decoders." .. file,
    {name .. "Config", name .. "Model", name .. "ForCausalLM", name .. "ForSequenceClassification"})
end
namespace.add(lazy, "accelhost.models.decoders.gemma3", {
  "Gemma3TextConfig", "Gemma3TextModel", "Gemma3ForCausalLM", "Gemma3TextForSequenceClassification",
})
for file, name in pairs {resnet = "ResNet", vit = "ViT", convnext = "ConvNext"} do
  namespace.add(lazy, "accelhost.models.vision." .. file,
    {name .. "Config", name .. "Model", name .. "ForImageClassification"})
end
namespace.add(lazy, "accelhost.models.vision.image_architectures", {
  "create_model", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vit_b_16", "vit_b_32", "vit_l_16",
  "vit_l_32", "convnext_tiny", "convnext_small", "convnext_base", "convnext_large",
})
namespace.add(lazy, "accelhost.models.vision.image_processor", {
  "AutoImageProcessor", "ViTImageProcessor", "ConvNextImageProcessor", "BitImageProcessor",
})
namespace.add(lazy, "accelhost.models.sentences.sentence_transformer", {"SentenceTransformer"})
namespace.add(lazy, "accelhost.models.sentences.losses", {
  "MultipleNegativesRankingLoss", "CosineSimilarityLoss", "TripletLoss",
})
namespace.add(lazy, "accelhost.models.auto", {
  "AutoModel", "AutoModelForSequenceClassification", "AutoModelForTokenClassification",
  "AutoModelForQuestionAnswering", "AutoModelForMultipleChoice", "AutoModelForMaskedLM", "AutoModelForCausalLM",
  "AutoModelForSeq2SeqLM", "AutoModelForImageClassification",
})

return namespace.new("accelhost.models", {}, lazy, {refused = {
  AutoTokenizer = "accelhost.text has it", BertTokenizer = "accelhost.text.AutoTokenizer reads tokenizer.json",
  BertForPreTraining = "use BertForMaskedLM", pipeline = "call the model, with accelhost.text.AutoTokenizer before it",
}})
