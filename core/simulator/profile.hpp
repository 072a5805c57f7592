// What a queue's nodes have free from a moment on if everything goes as expected: docs/contract/simulator.md,
// section 10.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/placement.hpp"
#include "simulator/snapshot.hpp"
#include "simulator/whole_nodes.hpp"

namespace gpuyard {

// What a plan begins with: what is free at a moment, and what runs in the queue.
struct PlanSource {
    struct Held {
        Time expected_end_us;
        std::int32_t demand;
        std::uint32_t part_count;
        std::size_t first_part;  // in the snapshot, where they stay
    };

    explicit PlanSource(const ClusterState& free) : state(free) {}
    void take(const Snapshot& snapshot, std::int32_t queue);

    Time now_us = 0;
    ClusterState state;
    std::vector<Held> running;  // by expected end; without those of unknown end
};

// Whether CPUs or memory may be what keeps jobs from running side by side, or what a rule goes by.
bool counts_cpus_or_memory(const ClusterSpec& spec, std::span<const Demand> demands);

// What is free as a step function of time: for each node in full, for all of them together as counts, by which most
// times are ruled out.
class Profile {
public:
    // `limited`: CPUs and memory count.
    Profile(std::shared_ptr<const ClusterSpec> spec, bool limited, std::span<const Demand> demands,
            const Placer& placer);

    // What is free at a moment, and what running jobs of the queue release.
    void build(const PlanSource& source, const Snapshot& snapshot);
    // Forgets what is before now.
    void advance(Time now_us);

    void hold(Time begin_us, Time end_us, const Demand& demand, std::span<const Part> parts) {
        change(begin_us, end_us, demand, parts, -1);
    }
    void release(Time begin_us, Time end_us, const Demand& demand, std::span<const Part> parts) {
        change(begin_us, end_us, demand, parts, +1);
    }

    // The first time at which the job can be placed for `length_us` (kEndless: for good); kEndless if there is none. It
    // is known not to be before `not_before_us`; one after `latest_us` need not be found.
    Time find(Time length_us, const Demand& demand, std::int64_t row, Time not_before_us, Time latest_us,
              Placer& placer, Allocation& out);
    // Whether some job of this demand can be placed for so long from the first moment on, for example there.
    bool fits_at_once(Time length_us, const Demand& demand, Placer& placer, Allocation& out);

    // Where a job that sits on one node may begin, as the rule ranks it: first the earliest.
    struct Chance {
        Time begin_us = kEndless;
        std::int64_t rank = 0;  // of the node by what it has free over the time of the job; the smaller the better
        std::int32_t node = -1;

        bool before(const Chance& o) const {
            if (begin_us != o.begin_us) return begin_us < o.begin_us;
            return rank != o.rank ? rank < o.rank : node < o.node;
        }
    };
    // Whether a job sits on one node that the rule chooses by what it has free and its number alone.
    bool ranks_nodes(const Demand& demand) const;
    // Whether all demands are searched for node by node.
    bool searches_nodes_only() const { return !counts_; }
    Time begin_us() const { return time_us_.front(); }
    std::size_t node_count() const { return steps_.size(); }
    std::int32_t position(std::int32_t node) const { return spec_->position[as_index(node)]; }
    // The first time at which a job that takes so many GPUs for so long can begin on a node; on the best node.
    Chance first_on_node(std::int32_t node, std::int64_t gpus, Time length_us, Time not_before_us) const;
    Chance first_in(const Pool& pool, std::int64_t gpus, Time length_us, Time not_before_us) const;
    // The same for jobs that run at some moment of a time span; kEndless if there is none.
    Time first_over(std::int32_t node, std::int64_t gpus, Time length_us, Time begin_us, Time end_us) const;

private:
    // What a node has free from a time on.
    struct Step {
        Time time_us;
        std::int64_t empty, cpus, memory_mib;

        bool same_free(const Step& other) const {
            return empty == other.empty && cpus == other.cpus && memory_mib == other.memory_mib;
        }
    };
    // What is to be added to it between two times.
    struct Change {
        Time begin_us, end_us;
        std::size_t from, to;  // the rows of these
        std::int64_t empty, cpus, memory_mib;
    };
    enum class Fit : std::uint8_t { fits, blocked, misfit };
    // The times at which a job may begin on one of some nodes, as spans: how many of them begin, and end, by a time.
    struct Spans {
        std::vector<Time> from_us, until_us;
        void clear() {
            from_us.clear();
            until_us.clear();
        }
    };

    std::size_t rows() const { return time_us_.size(); }
    Fit fit_from(std::size_t from, std::size_t& to, Time length_us, const Demand& demand, std::int64_t row,
                 Placer& placer, Allocation& out);
    std::size_t row_at(Time time_us);
    void erase_rows(std::size_t first, std::size_t count);
    void drop_if_idle(std::size_t at);
    void change(Time begin_us, Time end_us, const Demand& demand, std::span<const Part> parts, std::int32_t sign);
    void change_node(std::int32_t node, const Change& change);
    static std::size_t step_at(std::vector<Step>& steps, Time time_us);
    bool searches_nodes(const Demand& demand) const;
    bool takes_whole_nodes(const Demand& demand) const;
    void note_whole(std::int32_t node);
    Time find_whole_nodes(Time length_us, const Demand& demand, Time not_before_us, Time latest_us, Allocation& out);
    std::int64_t rank_of(std::int64_t least_empty) const;
    Time whole_for_good(const PoolOption& option);
    Time first_in_pool(const PoolOption& option, Time length_us, Time not_before_us, Time latest_us);
    Time find_on_one_node(Time length_us, const Demand& demand, Time not_before_us, Time latest_us,
                          Allocation& out) const;
    bool chooses_by_room() const;
    bool has_room_at_once(const PoolOption& option, Time end_us, std::vector<Part>& where) const;
    std::int64_t least_until(std::int32_t node, Time end_us, std::int64_t needed) const;
    template <class Found>
    void visit_chances(std::int32_t node, std::int64_t gpus, Time length_us, Time not_before_us, Time before_us,
                       Found found) const;
    bool may_fit(std::size_t row, const Demand& demand, const Placer& placer) const;
    void least_free(Time begin_us, Time end_us);

    std::shared_ptr<const ClusterSpec> spec_;
    bool limited_;
    bool needs_only_room_;
    bool splits_freely_;
    Placement rule_;
    bool counts_;       // some demand is searched for row by row
    bool notes_whole_;  // some demand takes whole nodes
    // By time, ascending: a row wherever a job or a reservation begins or ends; only the first unless `counts_`.
    std::vector<Time> time_us_;
    std::vector<std::int32_t> ends_;         // jobs and reservations that end there
    std::vector<std::int32_t> begins_;       // reservations that begin there
    std::vector<std::int32_t> count_;        // of nodes, by row and bucket
    std::vector<std::int64_t> pool_empty_;   // by row and pool
    std::vector<std::vector<Step>> steps_;   // by node; each begins at a row, the first at or before the first row
    std::vector<std::int32_t> least_empty_;  // by node
    std::vector<std::int64_t> least_cpus_, least_memory_mib_;
    std::vector<PlanSource::Held> by_end_;
    ClusterState window_;
    std::vector<WholeNodes> whole_nodes_;  // by pool
    std::vector<WholeNodes::Gap> gaps_;
    Spans whole_, partial_;
    std::vector<Time> for_good_;
};

}  // namespace gpuyard
