package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const interval = 5 * time.Millisecond

// Sends a numbered message in each interval and consumes, while things happen to the nodes, and tells
// of it as interop/failover_clients.py has it.
func failover(names primitive.NamesrvAddr, topic, group string) {
	handle := func(_ context.Context, all ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, each := range all {
			tell("delivered", each.GetKeys())
		}
		return consumer.ConsumeSuccess, nil
	}
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(names), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{}, handle))
	check(c.Start())
	p, err := rocketmq.NewProducer(producer.WithNameServer(names), producer.WithGroupName(group+"-producers"))
	check(err)
	check(p.Start())
	ended := make(chan bool)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		if lines.Scan() {
			close(ended)
		}
		for lines.Scan() {
		}
		os.Exit(0)
	}()
	turns := time.NewTicker(interval) // what was missed meanwhile is not sent all at once
	for number := 0; ; number++ {
		select {
		case <-turns.C:
			key := fmt.Sprint(number)
			each := primitive.NewMessage(topic, []byte(key))
			each.WithKeys([]string{key})
			result, err := p.SendSync(context.Background(), each)
			if err != nil {
				tell("failed", fmt.Sprintf("%.200q", err.Error()))
			} else if result.Status != primitive.SendOK {
				tell("failed", fmt.Sprint("status ", result.Status))
			} else {
				tell("acknowledged", key)
			}
		case <-ended:
			tell("stopped", "")
			select {}
		}
	}
}

func tell(word, what string) {
	fmt.Println(word, time.Now().UnixMilli(), what)
}
