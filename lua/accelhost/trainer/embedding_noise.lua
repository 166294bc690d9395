--- NEFTune (arXiv 2310.05914): in training uniform noise of alpha / sqrt(tokens * width) on the results of a model's
--- token embedding.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local embedding_noise = {}

--- Enable a training's noise, where its arguments ask for some; returns the function that ends it.
---@return fun()
function embedding_noise.begin(trainer)
  local alpha, model = trainer.args.neftune_noise_alpha, trainer.model
  if not alpha then return function() end end
  if not model.get_input_embeddings then
    arguments.fail("Trainer: neftune_noise_alpha: %s has no method get_input_embeddings()", arguments.describe(model))
  end
  local handle = model:get_input_embeddings():register_forward_hook(function(embedding, _, output)
    if not embedding.training then return end
    local bound = alpha / math.sqrt(output:size(-2) * output:size(-1))
    return output + C.zeros_like(output):uniform_(-bound, bound)
  end)
  return function() handle:remove() end
end

return embedding_noise
