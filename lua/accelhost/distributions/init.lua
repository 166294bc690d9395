--- accelhost.distributions: probability distributions with PyTorch's names, arguments and numbers.
--
--   local distributions = accelhost.distributions
--   local policy = distributions.Categorical {logits = accelhost.zeros(5, 3)}
--   local action = policy:sample()
--   local loss = -(policy:log_prob(action) * accelhost.ones(5)):mean() - policy:entropy():mean() * 0.01
--
-- PyTorch's properties are fields here (d.mean, d.variance, d.batch_shape); sample {3} draws three. Samples are those
-- of PyTorch for the same seed on the CPU.
local namespace = require "accelhost.util.namespace"

local lazy = {}
for file, name in pairs {
  distribution = "Distribution", bernoulli = "Bernoulli", beta = "Beta", categorical = "Categorical",
  dirichlet = "Dirichlet", exponential = "Exponential", gamma = "Gamma", independent = "Independent",
  log_normal = "LogNormal", multivariate_normal = "MultivariateNormal", normal = "Normal",
  one_hot_categorical = "OneHotCategorical", uniform = "Uniform",
} do
  lazy[name] = {"accelhost.distributions." .. file}
end
namespace.add(lazy, "accelhost.distributions.kl", {"kl_divergence", "register_kl"})

return namespace.new("distributions", {}, lazy)
