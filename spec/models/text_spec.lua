-- A tokenizer and a model together: the output of the one is the input of the other.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local models, text = accelhost.models, accelhost.text

local tokenizer = text.Tokenizer {
  pre_tokenizer = {type = "Whitespace"},
  model = {type = "WordPiece", vocab = {["[PAD]"] = 0, ["[UNK]"] = 1, deep = 2, ["##er"] = 3, sea = 4}},
}
tokenizer.pad_token = "[PAD]"

describe("A tokenizer's batch", function()
  it("is accepted by a model unchanged, and padding does not change results", function()
    accelhost.manual_seed(4)
    local sizes = {vocab_size = 5, hidden_size = 12, num_hidden_layers = 2, intermediate_size = 8, num_labels = 3}
    local model = models.BertForSequenceClassification(sizes):eval()
    local batch = tokenizer({"deep", "deeper deep sea"}, {padding = true})
    assert.same({1, 0, 0, 0}, batch.attention_mask[0]:tolist())
    local both = model(batch).logits
    local alone = model(tokenizer {"deep"}).logits
    check.near(check.flat(alone[0]), both[0], 1e-6)
    assert.is_truthy(model(batch, {labels = accelhost.arange(2)}).loss)
  end)

  it("trains a model through an accelerator", function()
    accelhost.manual_seed(4)
    local accelerator = accelhost.Accelerator()
    local model = models.BertForTokenClassification {
      vocab_size = 5, hidden_size = 12, num_hidden_layers = 1, intermediate_size = 8, num_labels = 5,
      hidden_dropout_prob = 0, attention_probs_dropout_prob = 0,
    }
    local optimizer = accelhost.optim.AdamW(model:parameters(), {lr = 0.02})
    model, optimizer = accelerator:prepare(model, optimizer)
    local batch = tokenizer({"deep sea", "deeper sea sea"}, {padding = true})
    local first, last
    for _ = 1, 60 do
      local loss = model(batch, {labels = batch.input_ids}).loss
      accelerator:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      first, last = first or loss:item(), loss:item()
    end
    assert(last < first / 5, ("%g -> %g"):format(first, last))
  end)
end)
