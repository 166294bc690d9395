--- Behaviour of transformers, embeddings and synchronised norms other than their numbers (modules_spec.lua).
local accelhost = require "accelhost"
local check = require "spec.support.check"

local nn, F = accelhost.nn, accelhost.nn.functional

describe("A transformer", function()
  it("masks the future", function()
    local mask = nn.Transformer.generate_square_subsequent_mask(2)
    assert.same({{0, -math.huge}, {0, 0}}, mask:tolist())
    local layer = nn.TransformerEncoderLayer(4, 2, 8, 0)
    local x = accelhost.randn(3, 1, 4)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    local wanted, hinted = layer(x, mask), layer(x, mask, {is_causal = true})
    check.near(check.flat(wanted), hinted, 1e-6)
    x[2] = 9
    check.near(check.flat(wanted:narrow(0, 0, 2)), layer(x, mask):narrow(0, 0, 2), 1e-6)
  end)

  it("copies the layer that it is given", function()
    local layer = nn.TransformerEncoderLayer(4, 2, 8)
    local encoder = nn.TransformerEncoder(layer, 2)
    assert.is_true(encoder.layers[1].linear1.weight:equal(encoder.layers[2].linear1.weight))
    assert.are_not.equal(encoder.layers[1].linear1.weight, encoder.layers[2].linear1.weight)
  end)

  it("reports mismatched arguments", function()
    check.raises("Transformer: expected src and tgt of one batch with 4 features, got (3, 2, 4) and (3, 1, 4)",
      function() nn.Transformer(4, 2, 1, 1, 8)(accelhost.zeros(3, 2, 4), accelhost.zeros(3, 1, 4)) end)
    check.raises("is_causal requires attn_mask", function()
      nn.TransformerEncoderLayer(4, 2, 8)(accelhost.zeros(3, 2, 4), {is_causal = true})
    end)
    check.raises("scaled_dot_product_attention: with enable_gqa the heads of key and value divide the query's, got "
      .. "(1, 2, 4, 2) and (1, 3, 4, 2)", function()
      local q, k = accelhost.zeros(1, 3, 4, 2), accelhost.zeros(1, 2, 4, 2)
      F.scaled_dot_product_attention(q, k, k, {enable_gqa = true})
    end)
  end)
end)

describe("An embedding", function()
  it("cuts the rows that are used in its weight, and no others", function()
    local weight = accelhost.tensor {{3, 4}, {0.3, 0.4}, {6, 8}}
    local layer = nn.Embedding.from_pretrained(weight, {max_norm = 1})
    layer(accelhost.tensor({0, 1}, {dtype = "int64"}))
    check.near({0.6, 0.8, 0.3, 0.4, 6, 8}, layer.weight, 1e-6)
  end)

  it("is made from a matrix, frozen or not", function()
    assert.is_false(nn.Embedding.from_pretrained(accelhost.ones(2, 3)).weight.requires_grad)
    local bag = nn.EmbeddingBag.from_pretrained(accelhost.ones(2, 3), false, {mode = "sum"})
    assert.is_true(bag.weight.requires_grad)
    assert.same({{2, 2, 2}}, bag(accelhost.tensor({{0, 1}}, {dtype = "int64"})):tolist())
  end)

  it("returns zeros for an empty bag", function()
    for _, mode in ipairs {"sum", "mean", "max"} do
      local bag = nn.EmbeddingBag(3, 2, {mode = mode})
      local result = bag(accelhost.tensor({1}, {dtype = "int64"}), accelhost.tensor({0, 1, 1}, {dtype = "int64"}))
      assert.same({3, 2}, result:shape())
      assert.same({{0, 0}, {0, 0}}, result:narrow(0, 1, 2):tolist())
    end
  end)
end)

describe("SyncBatchNorm", function()
  it("replaces every batch norm of a module, with its tensors", function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm2d(3, {affine = false})))
    local weight, keys = net[2].weight, {}
    for key in pairs(net:state_dict()) do keys[#keys + 1] = key end
    assert.equal(net, nn.SyncBatchNorm.convert_sync_batchnorm(net))
    assert.equal("SyncBatchNorm", net[2]._name)
    assert.equal("SyncBatchNorm", net[3][1]._name)
    assert.equal(weight, net[2].weight)
    local state = net:state_dict()
    for _, key in ipairs(keys) do assert.is_not_nil(state[key]) end
    assert.equal("SyncBatchNorm", nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm3d(2))._name)
  end)

  it("reports mismatched arguments", function()
    check.raises("SyncBatchNorm: process_group: expected a group of processes, got 'world'", function()
      nn.SyncBatchNorm(2, {process_group = "world"})
    end)
    check.raises("SyncBatchNorm: expected an input (N, 2, ...), got (3, 3)", function()
      nn.SyncBatchNorm(2)(accelhost.zeros(3, 3))
    end)
  end)
end)
