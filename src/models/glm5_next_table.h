#pragma once
// The one table of tensor names, shapes and places, walked by the inventory and by the binding. Internal to the family.

#include <string>

#include "models/glm5_next_tensors.h"

namespace lathe::models {

/// Is told of every tensor of a model in turn, with the place where its view belongs.
class TensorVisitor {
 public:
  virtual ~TensorVisitor() = default;
  /// spec.shape is the stored shape; the matrix has its first dimension as rows and the product of the others as columns.
  virtual void matrix(TensorSpec spec, MatrixView& place) = 0;
  /// The view has spec.shape, without the middle 1 of a convolution [C, 1, W].
  virtual void vector(TensorSpec spec, View& place) = 0;
};

/// Walks the table and shapes `weights` (layers, experts, optional parts) on the way; parts that are there already stay.
void visit_tensors(const Glm5NextConfig& config, TensorVisitor& visitor, Glm5NextWeights& weights);

}  // namespace lathe::models
