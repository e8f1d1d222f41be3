package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	messages = 25
	queues   = 4
	patience = 90 * time.Second
)

func sent(names primitive.NamesrvAddr) map[string]interface{} {
	found := send(names)
	keys, times := push(names)
	found["retried"] = map[string]interface{}{"received": keys, "times": times}
	found["pull"] = pull(names)
	return found
}

// Ten in turn, five in one batch, five that are waited for at the end, five without an answer.
func send(names primitive.NamesrvAddr) map[string]interface{} {
	p, err := rocketmq.NewProducer(producer.WithNameServer(names), producer.WithGroupName("go-producers"))
	check(err)
	check(p.Start())
	defer p.Shutdown()
	var one, many, async statuses
	for i := 0; i < 10; i++ {
		result, err := p.SendSync(context.Background(), message("Sent", i))
		one.add(result, err)
	}
	batch := []*primitive.Message{}
	for i := 10; i < 15; i++ {
		batch = append(batch, message("Sent", i))
	}
	many.add(p.SendSync(context.Background(), batch...))
	var wait sync.WaitGroup
	for i := 15; i < 20; i++ {
		wait.Add(1)
		answered := func(_ context.Context, result *primitive.SendResult, err error) {
			defer wait.Done()
			async.add(result, err)
		}
		check(p.SendAsync(context.Background(), answered, message("Sent", i)))
	}
	wait.Wait()
	for i := 20; i < messages; i++ {
		check(p.SendOneWay(context.Background(), message("Sent", i)))
	}
	time.Sleep(time.Second) // a connection that closes loses what was not sent yet
	return map[string]interface{}{
		"sync": one.counts, "batch": many.counts, "async": async.counts, "oneway": messages - 20,
	}
}

// How many answers had which status.
type statuses struct {
	lock   sync.Mutex
	counts map[string]int
}

func (s *statuses) add(result *primitive.SendResult, err error) {
	check(err)
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.counts == nil {
		s.counts = map[string]int{}
	}
	s.counts[fmt.Sprint("status ", result.Status)]++
}

// The keys that came, and how often a message came for the first time and again.
func push(names primitive.NamesrvAddr) ([]string, map[string]int) {
	var lock sync.Mutex
	keys := map[string]bool{}
	times := map[string]int{}
	handle := func(ctx context.Context, all ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, each := range all {
			times[fmt.Sprint("delivery ", each.ReconsumeTimes)]++
			if each.GetKeys() == "key00" && each.ReconsumeTimes == 0 {
				if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
					concurrent.DelayLevelWhenNextConsume = 1
				}
				return consumer.ConsumeRetryLater, nil
			}
			keys[each.GetKeys()+" "+each.GetProperty("number")] = true
		}
		return consumer.ConsumeSuccess, nil
	}
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(names), consumer.WithGroupName("go-readers"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(c.Subscribe("Sent", consumer.MessageSelector{Type: consumer.TAG, Expression: "tag"}, handle))
	check(c.Start())
	waitFor(&lock, func() bool { return len(keys) == messages })
	check(c.Shutdown())
	lock.Lock()
	defer lock.Unlock()
	return sorted(keys), times
}

// What lies in the queues, read by offset.
func pull(names primitive.NamesrvAddr) []string {
	c, err := rocketmq.NewPullConsumer(consumer.WithNameServer(names), consumer.WithGroupName("go-pullers"))
	check(err)
	check(c.Subscribe("Sent", consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	check(c.Start())
	defer c.Shutdown()
	keys := map[string]bool{}
	for id := 0; id < queues; id++ {
		queue := &primitive.MessageQueue{Topic: "Sent", BrokerName: os.Args[2], QueueId: id}
		for offset, end := int64(0), int64(1); offset < end; {
			result, err := c.PullFrom(context.Background(), queue, offset, 32)
			check(err)
			for _, each := range result.GetMessageExts() {
				keys[fmt.Sprint(each.GetKeys(), " ", string(each.Body))] = true
			}
			offset, end = result.NextBeginOffset, result.MaxOffset
		}
	}
	return sorted(keys)
}

func sorted(keys map[string]bool) []string {
	found := []string{}
	for each := range keys {
		found = append(found, each)
	}
	sort.Strings(found)
	return found
}

// Until `done`, which is asked with `lock` taken, or the patience ends.
func waitFor(lock sync.Locker, done func() bool) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		lock.Lock()
		over := done()
		lock.Unlock()
		if over {
			return
		}
	}
}
