// job-scorer: one scorer shared by all jobs, told what they have in common.
#include <algorithm>

#include "network/network.hpp"

namespace gpuyard {

namespace {

class JobScorer final : public Network {
public:
    JobScorer(const NetworkSettings& settings, const NetworkSizes& sizes, const Tensors& tensors,
              const Kernels& kernels)
        : Network(settings, sizes, kernels),
          width_(padded(settings.width)),
          jobs_(Layer::of(tensors, "encode_jobs", sizes.job_columns, settings.width)),
          context_(Layer::of(tensors, "context", 3 * settings.width, settings.width)),
          value_hidden_(Layer::of(tensors, "value_hidden", settings.width, settings.width)),
          policy_(Heads::of(tensors, "policy", settings.width, sizes.choices_per_row())),
          noop_(Heads::of(tensors, "noop", settings.width, 1)),
          value_(Heads::of(tensors, "value", settings.width, 1)) {
        if (sizes.global_columns > 0)
            globals_ = Layer::of(tensors, "encode_globals", sizes.global_columns, settings.width);
        for (std::size_t i = 0; i + 1 < settings.depth; ++i)
            rows_.push_back(Layer::of(tensors, "rows." + std::to_string(i), settings.width, settings.width));
        if (settings.depth > 1)
            rows_context_ = Layer::of(tensors, "rows_context.0", settings.width, settings.width, false);
    }

private:
    std::size_t scratch_floats() const override {
        return padded(sizes_.rows * sizes_.job_columns) + 2 * sizes_.rows * width_ + 3 * padded(sizes_.rows + 1) +
               2 * (padded(sizes_.global_columns + 1) + padded(3 * settings_.width + 1)) + 16 * (width_ + kLanes);
    }

    // What all jobs are told: relu(context([mean, maximum, globals])).
    const float* pooled(const NetworkInput& input, const Rows& jobs, Scratch& scratch) const {
        const std::size_t width = settings_.width;
        float* const sum = scratch.floats(width_);
        float* const most = scratch.floats(width_);
        float* const globals = scratch.floats(width_);
        float* const all = scratch.floats(3 * width);
        float* const context = scratch.floats(width_);
        kernels_.pool_rows(jobs, width_, sum, most);
        const auto count = static_cast<float>(std::max<std::size_t>(jobs.count, 1));
        for (std::size_t i = 0; i < width; ++i) all[i] = sum[i] / count;
        std::copy_n(most, width, all + width);
        if (sizes_.global_columns > 0)
            apply(globals_, {input.globals, sizes_.global_columns}, globals_.bias(), globals, Finish::relu, scratch);
        else
            std::fill_n(globals, width, 0.0F);
        std::copy_n(globals, width, all + 2 * width);
        apply(context_, {all, 3 * width}, context_.bias(), context, Finish::relu, scratch);
        return context;
    }

    // Rows through the layers that know the context; what comes out may stand where `spare` is.
    Rows through_rows(Rows rows, const float* context, float* spare, Scratch& scratch) const {
        for (std::size_t i = 0; i < rows_.size(); ++i) {
            const float* start = rows_[i].bias();
            if (i == 0) {
                float* const told = scratch.floats(width_);
                apply(rows_context_, {context, settings_.width}, rows_[0].bias(), told, Finish::store, scratch);
                start = told;
            }
            kernels_.dense(rows, rows_[i].packed(), start, spare, width_, Finish::relu);
            float* const free = const_cast<float*>(rows.data);  // it is part of the scratch too
            rows.data = spare;
            spare = free;
        }
        return rows;
    }

    void compute(const NetworkInput& input, float* logits, float* value, Scratch& scratch) const override {
        const RowNumbers present =
            present_rows(input.jobs, sizes_.rows, sizes_.job_columns, sizes_.job_present, scratch);
        float* const encoded = scratch.floats(sizes_.rows * width_);
        float* const spare = scratch.floats(sizes_.rows * width_);
        apply_to_rows(jobs_, picked_rows(input.jobs, sizes_.job_columns, present, scratch), encoded, Finish::relu);
        const float* const context = pooled(input, {encoded, width_, present.count}, scratch);
        const RowNumbers wanted = wanted_rows(input, present, scratch);
        for (std::size_t i = 0; i < wanted.count; ++i) {
            const std::size_t from = wanted.numbers[i];
            if (from != i) std::copy_n(encoded + from * width_, width_, encoded + i * width_);
            wanted.numbers[i] = present.numbers[from];
        }
        const Rows rows = through_rows({encoded, width_, wanted.count}, context, spare, scratch);
        write_job_logits(input, policy_, rows, wanted.numbers, dot(noop_, context, width_), logits, scratch);
        if (value == nullptr) return;
        float* const hidden = scratch.floats(width_);
        apply(value_hidden_, {context, settings_.width}, value_hidden_.bias(), hidden, Finish::relu, scratch);
        *value = dot(value_, hidden, width_);
    }

    std::size_t width_;  // padded
    Layer jobs_, globals_, context_, rows_context_, value_hidden_;
    std::vector<Layer> rows_;
    Heads policy_, noop_, value_;
};

}  // namespace

std::unique_ptr<Network> make_job_scorer(const NetworkSettings& settings, const NetworkSizes& sizes,
                                         const Tensors& tensors, const Kernels& kernels) {
    return std::make_unique<JobScorer>(settings, sizes, tensors, kernels);
}

}  // namespace gpuyard
